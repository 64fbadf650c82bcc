"""The writer: from the spool into the hypertable."""
