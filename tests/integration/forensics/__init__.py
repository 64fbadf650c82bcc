"""The questions of schema/routines/forensics, each with rows that must and rows that must not appear."""
