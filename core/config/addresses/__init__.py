"""Addresses of channels and devices in a configuration, as text and in parts."""
