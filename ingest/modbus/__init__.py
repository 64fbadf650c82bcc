"""The Modbus collector."""
