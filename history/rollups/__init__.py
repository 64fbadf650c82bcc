"""Verification of rollups against the samples."""
