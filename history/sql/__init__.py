"""``plantlog sql``: DuckDB over the archive and the database together (docs/questions.md)."""
