"""Tests of plantlog. They share the root file system of PostgreSQL where they need one: to make it takes a minute."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("PLANTLOG_ROOTFS", str(Path(__file__).parents[1] / ".state" / "postgres" / "rootfs"))
