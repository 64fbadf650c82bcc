"""Tests of plantlog."""
