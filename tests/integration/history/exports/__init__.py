"""Exports of days and intervals, verified without plantlog."""
