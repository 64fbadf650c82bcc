"""Subscriptions and monitored items, and the path of a notification to a batch."""
