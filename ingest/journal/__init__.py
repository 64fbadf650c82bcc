"""The journal: what the database has committed, kept for a while, so that it can be written again."""
