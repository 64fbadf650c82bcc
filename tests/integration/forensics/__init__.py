"""The questions of schema/forensics, each with rows that must and rows that must not appear."""
