"""Alarm notifications: built from notices that the writer queued, and delivered at least once to each receiver."""
