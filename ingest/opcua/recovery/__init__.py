"""What an outage took: history that the server still has."""
