"""Backups of the state folder and its database by pgBackRest, and the restore."""
