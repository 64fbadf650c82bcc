"""Archiving of sealed days: they are written, verified and amended."""
