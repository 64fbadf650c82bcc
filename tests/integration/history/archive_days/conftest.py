"""A plant of two days, whose maintenance archives."""

from __future__ import annotations

from tests.integration.history.archive_maintenance import plant

__all__ = ["plant"]
