"""The file that lists plants: the documented one, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.errors import OperationError
from history.archive_days.plants_file import plants_of
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


@pytest.fixture
def on_cluster(documented: Path) -> Path:
    """The same file with the table of docs/scale.md, and the cluster's certificates."""
    [block] = [block for block in blocks("toml") if block.text.startswith("[questions]")]
    documented.write_text(f"{documented.read_text()}\n{block.text}")
    folder = documented.with_name("cluster")
    folder.mkdir()
    for name in ("ca.crt", "member.pem"):
        (folder / name).touch(0o600)
    return documented


def test_documented_file_lists_two_plants(documented: Path) -> None:
    assert [plant.name for plant in plants_of(documented).plants] == ["north", "south"]
    [south] = plants_of(documented, ["s*"]).plants
    assert (south.number, str(south.installation)) == (1, "7d1b0f0a-93c4-4a39-8d5b-2f0f7a1f6c22")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[plants.north]", '[plants."a/b"]', "plants.a/b: found 'a/b'; legal: letters, digits, ., - and _"),
        (
            "0b2f6c1e-5d0c-4d5e-9a55-4f6f3a2f9b10",
            "north",
            "plants.toml:5: plants.north.installation: found 'north'; legal: an id",
        ),
        ("south.pem", "west.pem", "plants.south.public_key: "),
        ("public_key", "key", "plants.north.public_key: found nothing; legal: a file's path in quotes"),
        ("location", "place", "archive.place: found an unknown option; legal: one of ca_file, key_file, location, "),
        ("location = ", "s3_region = ", "archive.s3_region: "),
        (
            'location = "/',
            'location = "s3://bucket/',
            "archive.key_file: found nothing; legal: a file with the key",
        ),
        ("[plants.", "[plant.", "plants: found nothing; legal: one or more tables [plants.NAME]"),
        ("[archive]", "[archive", "at line 1"),
    ],
)
def test_what_is_wrong_is_named(documented: Path, old: str, new: str, problem: str) -> None:
    documented.write_text(documented.read_text().replace(old, new))
    with pytest.raises(OperationError) as error:
        plants_of(documented)
    assert problem in str(error.value)


def test_cluster_is_that_of_the_file(on_cluster: Path) -> None:
    folder = on_cluster.with_name("cluster")
    assert plants_of(on_cluster).questions == {
        "cluster": "tls://scheduler:8786",
        "ca_file": str(folder / "ca.crt"),
        "certificate_file": str(folder / "member.pem"),
        "key_file": str(folder / "member.pem"),
    }


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "tls://scheduler:8786",
            "http://a",
            "questions.cluster: found 'http://a'; legal: the address of Dask's scheduler",
        ),
        (
            "tls:",
            "tcp:",
            "cluster/ca.crt'; legal: no value without cluster = tls://",
        ),
        (
            "key_file",
            "key",
            "questions.key: found an unknown option; legal: one of ca_file, certificate_file, cluster,",
        ),
        ('key_file = "cluster/member.pem"', "", "questions.key_file: found nothing; legal: a file of the cluster's"),
        ("ca.crt", "ca.pem", "ca.pem'; legal: an existing file"),
    ],
)
def test_what_is_wrong_with_the_cluster_is_named(on_cluster: Path, old: str, new: str, problem: str) -> None:
    on_cluster.write_text(on_cluster.read_text().replace(old, new))
    with pytest.raises(OperationError) as error:
        plants_of(on_cluster)
    assert problem in str(error.value)


def test_key_that_others_can_read_is_named(on_cluster: Path) -> None:
    key = on_cluster.with_name("cluster") / "member.pem"
    key.chmod(0o644)
    with pytest.raises(OperationError, match=rf"questions\.key_file: .* 0644; legal: 0600: run chmod 600 {key}"):
        plants_of(on_cluster)


def test_unknown_plant_is_named_with_those_that_there_are(documented: Path) -> None:
    with pytest.raises(OperationError, match=r"--plant: no plant is west; .* has north, south"):
        plants_of(documented, ["west"])


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="found no such file"):
        plants_of(tmp_path / "plants.toml")
