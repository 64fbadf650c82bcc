"""The questions of schema/questions, each with rows that must and rows that must not appear."""
