"""Certificates, and whom to trust (OPC 10000-4, 6.1)."""
