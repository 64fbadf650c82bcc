"""The OPC UA collector."""
