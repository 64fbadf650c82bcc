"""Notebooks on an archive."""
