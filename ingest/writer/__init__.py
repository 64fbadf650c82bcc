"""The writer: moves batches from the spool to the database."""
