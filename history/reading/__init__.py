"""Samples of an interval, wherever the database keeps them."""
