"""Rollups beside the samples that they were made from."""
