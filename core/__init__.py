"""What all parts agree on: samples, times, files, connections, users, configuration."""
