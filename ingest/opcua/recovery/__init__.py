"""Recovery of what an outage took, from the history that the server still has."""
