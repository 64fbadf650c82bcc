"""Needs of a deployment by Docker Compose: secrets and ``.env``, and the preparation of the database."""
