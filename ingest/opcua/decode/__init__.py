"""From the bytes of a message to columns (OPC 10000-6)."""
