"""Losses of the database: the mark of what was committed, compared with each database that is connected to."""
