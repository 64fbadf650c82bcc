"""Sources and channels in the database: registering, renaming, and which installation owns the database."""
