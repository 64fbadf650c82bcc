"""TimescaleDB without containers: from Debian's packages, private to one state folder."""
