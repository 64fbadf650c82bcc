"""Common ground of all parts: samples, times, files, connections, users, configuration."""
