"""Keys are made once, kept to their owner, rotated, and missed when they are gone."""

from __future__ import annotations

import stat

import asyncpg
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ingest.errors import OperationError
from ops.evidence.keys import path_of, rotate, signer, stored_keys
from ops.evidence.standalone import read_keys
from tests.integration.evidence.plant import Plant, public_key


async def test_a_key_is_made_once(plant: Plant) -> None:
    first = await signer(plant.owner, plant.state)
    assert stat.S_IMODE(path_of(plant.state).stat().st_mode) == 0o600
    assert (await signer(plant.owner, plant.state)).public == first.public
    assert read_keys(first.pem().encode()) == [first.public]
    [stored] = await stored_keys(plant.owner)
    assert (stored.fingerprint, stored.succeeds) == (first.fingerprint, "")


async def test_a_key_that_others_may_read(plant: Plant) -> None:
    await signer(plant.owner, plant.state)
    path_of(plant.state).chmod(0o640)
    with pytest.raises(OperationError, match=r"may be read by others \(640\): chmod 600 it"):
        await plant.seal()


async def test_a_key_that_is_gone(plant: Plant) -> None:
    first = await signer(plant.owner, plant.state)
    path_of(plant.state).unlink()
    with pytest.raises(OperationError, match=r"seal.key is missing; its seals are signed by .*--new-key"):
        await plant.seal()
    new = await signer(plant.owner, plant.state, new=True)
    assert new.public != first.public
    await plant.seal()
    assert (await plant.verify()).ok


async def test_a_key_of_another_database(plant: Plant) -> None:
    await signer(plant.owner, plant.state)
    path_of(plant.state).unlink()
    await signer(plant.owner, plant.state, new=True)
    await plant.tamper("DELETE FROM plant.seal_key WHERE made_at = (SELECT max(made_at) FROM plant.seal_key)")
    with pytest.raises(OperationError, match="which this database does not know"):
        await plant.seal()


@pytest.mark.parametrize("kind", ["rubbish", "x25519"])
async def test_a_file_that_is_no_key(plant: Plant, kind: str) -> None:
    path = path_of(plant.state)
    path.touch(mode=0o600)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    other = X25519PrivateKey.generate().private_bytes(encoding, form, serialization.NoEncryption())
    path.write_bytes(b"rubbish" if kind == "rubbish" else other)
    with pytest.raises(OperationError, match=r"is no private key in PEM form|is not an Ed25519 key"):
        await plant.seal()


async def test_a_rotation_that_was_killed_between_database_and_file(plant: Plant) -> None:
    await signer(plant.owner, plant.state)
    before = path_of(plant.state).read_bytes()
    new = await rotate(plant.owner, plant.state)
    coming = path_of(plant.state).with_name("seal.key.next")
    path_of(plant.state).rename(coming)
    path_of(plant.state).write_bytes(before)
    path_of(plant.state).chmod(0o600)
    assert (await signer(plant.owner, plant.state)).public == new.public
    assert not coming.exists()


async def test_a_rotation_that_was_killed_before_the_database_knew(plant: Plant) -> None:
    first = await signer(plant.owner, plant.state)
    coming = path_of(plant.state).with_name("seal.key.next")
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    other = Ed25519PrivateKey.generate().private_bytes(encoding, form, serialization.NoEncryption())
    coming.write_bytes(other)
    coming.chmod(0o600)
    assert (await signer(plant.owner, plant.state)).public == first.public
    new = await rotate(plant.owner, plant.state)
    assert new.public != first.public
    assert [key.succeeds for key in await stored_keys(plant.owner)] == ["", first.fingerprint]


async def test_the_database_keeps_no_private_key(plant: Plant) -> None:
    public_key_is_all = await plant.owner.fetchrow("SELECT * FROM plant.seal_key")
    assert public_key_is_all is None
    await plant.seal()
    reader = await asyncpg.connect(plant.database.reader_dsn)
    [row] = await reader.fetch("SELECT public FROM plant.seal_key")
    await reader.close()
    pem = public_key(plant, plant.state.root / "key.pem")
    assert read_keys(pem.read_bytes()) == [row["public"].hex()]
