"""Sources of what DuckDB reads: archive and database together, in portions, and the processes that read these."""
