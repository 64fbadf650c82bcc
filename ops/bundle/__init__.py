"""Bundles: all that an installation without a network needs, in one file."""
