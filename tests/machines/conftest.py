"""Fixtures of several tests of machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backup_site import Site, options_of, running, tmpfs
from tests.folders import enterable_folder


@pytest.fixture(scope="module")
def site(server: str) -> Iterator[Site]:
    assert server, "it sees to the programs being there"
    with enterable_folder() as folder, tmpfs(folder / "disk") as disk, running(folder, options_of(disk)) as made:
        yield made
