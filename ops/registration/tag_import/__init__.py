"""Imports what other products read: their files become tag lists and sources of ``plant.toml``."""
