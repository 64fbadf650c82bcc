"""The file that lists plants: the documented one, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.errors import OperationError
from history.archive_days.plants import Plants
from history.seals.keys import public_pem
from tests.docs import blocks


@pytest.fixture
def documented(tmp_path: Path) -> Path:
    """The file of docs/archive.md, with keys and an empty archive."""
    [block] = [block for block in blocks("text") if "[plants.north]" in block.text]
    for name in ("north", "south"):
        key = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
        (tmp_path / f"{name}.pem").write_text(public_pem(key))
    file = tmp_path / "plants.toml"
    file.write_text(block.text.replace("/srv/archive", str(tmp_path)))
    return file


def test_documented_file_lists_two_plants(documented: Path) -> None:
    assert [plant.name for plant in Plants.of_file(documented).plants] == ["north", "south"]
    [south] = Plants.of_file(documented, ["s*"]).plants
    assert (south.number, str(south.installation)) == (1, "7d1b0f0a-93c4-4a39-8d5b-2f0f7a1f6c22")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[plants.north]", '[plants."a/b"]', "plants: found 'a/b'; legal: letters, digits, ., - and _"),
        ("0b2f6c1e-5d0c-4d5e-9a55-4f6f3a2f9b10", "north", "plants.north.installation: Input should be a valid UUID"),
        ("south.pem", "west.pem", "plants.south.public_key: "),
        ("public_key", "key", "plants.north.public_key: Field required"),
        ("location", "place", "archive.place: Extra inputs are not permitted"),
        ("location = ", "s3_region = ", "archive.s3_region: "),
        ("[plants.", "[plant.", "plants: Field required"),
        ("[archive]", "[archive", "at line 1"),
    ],
)
def test_what_is_wrong_is_named(documented: Path, old: str, new: str, problem: str) -> None:
    documented.write_text(documented.read_text().replace(old, new))
    with pytest.raises(OperationError) as error:
        Plants.of_file(documented)
    assert problem in str(error.value)


def test_unknown_plant_is_named_with_those_that_there_are(documented: Path) -> None:
    with pytest.raises(OperationError, match=r"--plant: no plant is west; .* has north, south"):
        Plants.of_file(documented, ["west"])


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="No such file or directory"):
        Plants.of_file(tmp_path / "plants.toml")
