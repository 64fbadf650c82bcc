"""Archived days: their files, and readers that are not plantlog."""
