"""Where things are: the checkout and the state folder."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
EXAMPLE = CHECKOUT / "ops" / "example" / "plant.toml"


def state_folder() -> Path:
    """``PLANTLOG_STATE``, or ``.state`` in the checkout."""
    return Path(os.environ.get("PLANTLOG_STATE") or CHECKOUT / ".state").absolute()
