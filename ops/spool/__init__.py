"""The spool and the quarantine: listing, export, retry."""
