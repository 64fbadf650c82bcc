"""Decoding of messages into columns (OPC 10000-6)."""
