"""The archive: sealed days as Parquet files, in a folder or in S3-compatible storage (docs/archive.md)."""
