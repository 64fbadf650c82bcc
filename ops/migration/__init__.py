"""Brings a database to the schema of this version: tables once, then routines as they are in the files."""
