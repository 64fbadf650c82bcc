"""The codec of samples: packed hours, packed minutes and the row groups of the archive.

Both hold values as integers over a power of ten wherever that restores every bit (``scaling``). What differs is what
stores the integers: byte planes in PostgreSQL's arrays, or deltas in Parquet.
"""
