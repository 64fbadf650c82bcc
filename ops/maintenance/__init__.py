"""Scheduled jobs that maintain the database: rollups, compression, seals, retention, statistics, chunks ahead."""
