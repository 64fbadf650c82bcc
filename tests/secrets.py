"""Files with a secret, as `check` wants them."""

from __future__ import annotations

from pathlib import Path


def write_secret(path: Path, secret: str) -> None:
    """Readable by the owner alone, with a line end."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(secret + "\n")
