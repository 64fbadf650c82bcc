"""``plantlog import``: history from files of other systems."""
