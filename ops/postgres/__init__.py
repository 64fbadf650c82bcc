"""PostgreSQL with TimescaleDB without containers: from Debian packages, private to one state folder."""
