"""Memory of the machine, of which PostgreSQL takes a share: a limit of a control group counts, if it can be known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ops.postgres.cluster import Cluster

_NOBODY = 65534


def test_limit_of_a_control_group_counts_where_this_account_may_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "group"
    folder.mkdir(mode=0o700)
    (folder / "memory.max").write_text(f"{512 * 1024**2}\n")
    monkeypatch.setattr("ops.postgres.cluster._MEMORY_LIMITS", (folder / "memory.max", tmp_path / "missing"))
    assert Cluster._memory_mb() == 512
    if os.geteuid() != 0:
        pytest.skip("only root can become another account")
    os.seteuid(_NOBODY)
    try:
        assert Cluster._memory_mb() > 512
    finally:
        os.seteuid(0)
