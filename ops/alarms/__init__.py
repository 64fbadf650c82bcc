"""Alarms as an operator sees them: a client of the collectors' alarm sockets."""
