"""Evidence: seals of closed days, their verification and export. The specification is in ``standalone``."""
