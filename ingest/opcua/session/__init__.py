"""The secure channel, the session, and service calls in it."""
