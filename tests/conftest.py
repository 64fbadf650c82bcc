"""Fixtures for all tests."""

from hypothesis import HealthCheck, settings

from tests.database import database, empty_database, server

__all__ = ["database", "empty_database", "server"]

# What a loaded machine takes for an example says nothing of the code.
settings.register_profile("plantlog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("plantlog")
