"""plantlog as a systemd service: its unit, and the process that systemd watches."""
