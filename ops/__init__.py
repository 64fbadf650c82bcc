"""Life of an appliance: commands, start and stop, registration, maintenance, backup, its PostgreSQL."""
