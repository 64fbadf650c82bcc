"""The forensic questions of ``schema/forensics``, asked on the command line."""
