"""What a deployment by Docker Compose needs: secrets and ``.env``, and the preparation of the database."""
