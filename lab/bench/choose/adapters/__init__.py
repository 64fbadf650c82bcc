"""A module for each contestant of ``plantlog bench choose``."""
