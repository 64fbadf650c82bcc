"""``plantlog source import-history``: history from files of other systems."""
