"""A database on several machines: a primary, its standbys, and a monitor that fails over, by pg_auto_failover."""
