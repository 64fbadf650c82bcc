"""Fixtures for all tests."""

from tests.database import database, empty_database, server

__all__ = ["database", "empty_database", "server"]
