"""Evidence: seals over closed days, their verification, and export. The specification is in ``standalone``."""
