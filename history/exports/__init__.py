"""Bundles of sealed days and of intervals, for others to verify."""
