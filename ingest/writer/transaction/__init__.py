"""One transaction of the writer: a group of batches, its rows by table, and what the database rejects of it."""
