"""Keys are made once, kept to their owner, rotated, and missed when they are gone."""

from __future__ import annotations

import stat

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from core.errors import OperationError
from history.seals.keys import key_path, rotate, signer, stored_keys
from history.standalone import read_keys
from tests.database import connected
from tests.integration.history.sealed_plant import SealedPlant, public_key


async def test_signing_key_is_created_once(plant: SealedPlant) -> None:
    first = await signer(plant.owner, plant.state)
    assert stat.S_IMODE(key_path(plant.state).stat().st_mode) == 0o600
    assert (await signer(plant.owner, plant.state)).public == first.public
    assert read_keys(first.pem().encode()) == [first.public]
    [stored] = await stored_keys(plant.owner, 1)
    assert (stored.fingerprint, stored.succeeds) == (first.fingerprint, "")


async def test_readable_signing_key_is_refused(plant: SealedPlant) -> None:
    await signer(plant.owner, plant.state)
    key_path(plant.state).chmod(0o640)
    with pytest.raises(OperationError, match=r"is readable by others \(640\): run chmod 600"):
        await plant.seal()


async def test_missing_signing_key_is_refused(plant: SealedPlant) -> None:
    first = await signer(plant.owner, plant.state)
    key_path(plant.state).unlink()
    with pytest.raises(OperationError, match=r"seal.key is missing; seals are signed by .*--new-key"):
        await plant.seal()
    new = await signer(plant.owner, plant.state, new=True)
    assert new.public != first.public
    await plant.seal()
    assert (await plant.verify()).ok


async def test_signing_key_of_another_database_is_refused(plant: SealedPlant) -> None:
    await signer(plant.owner, plant.state)
    key_path(plant.state).unlink()
    await signer(plant.owner, plant.state, new=True)
    await plant.tamper("DELETE FROM plant.seal_key WHERE made_at = (SELECT max(made_at) FROM plant.seal_key)")
    with pytest.raises(OperationError, match="which is unknown to this database"):
        await plant.seal()


@pytest.mark.parametrize("kind", ["rubbish", "x25519"])
async def test_invalid_key_file_is_refused(plant: SealedPlant, kind: str) -> None:
    path = key_path(plant.state)
    path.touch(mode=0o600)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    other = X25519PrivateKey.generate().private_bytes(encoding, form, serialization.NoEncryption())
    path.write_bytes(b"rubbish" if kind == "rubbish" else other)
    with pytest.raises(OperationError, match=r"is not an unencrypted private key in PEM format|is not an Ed25519 key"):
        await plant.seal()


async def test_rotation_killed_after_the_database_is_completed(plant: SealedPlant) -> None:
    await signer(plant.owner, plant.state)
    before = key_path(plant.state).read_bytes()
    new = await rotate(plant.owner, plant.state)
    coming = key_path(plant.state).with_name("seal.key.next")
    key_path(plant.state).rename(coming)
    key_path(plant.state).write_bytes(before)
    key_path(plant.state).chmod(0o600)
    assert (await signer(plant.owner, plant.state)).public == new.public
    assert not coming.exists()


async def test_rotation_killed_before_the_database_is_repeated(plant: SealedPlant) -> None:
    first = await signer(plant.owner, plant.state)
    coming = key_path(plant.state).with_name("seal.key.next")
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    other = Ed25519PrivateKey.generate().private_bytes(encoding, form, serialization.NoEncryption())
    coming.write_bytes(other)
    coming.chmod(0o600)
    assert (await signer(plant.owner, plant.state)).public == first.public
    new = await rotate(plant.owner, plant.state)
    assert new.public != first.public
    assert [key.succeeds for key in await stored_keys(plant.owner, 1)] == ["", first.fingerprint]


async def test_the_database_keeps_no_private_key(plant: SealedPlant) -> None:
    public_key_is_all = await plant.owner.fetchrow("SELECT * FROM plant.seal_key")
    assert public_key_is_all is None
    await plant.seal()
    async with connected(plant.database.reader_dsn) as reader:
        [row] = await reader.fetch("SELECT public FROM plant.seal_key")
    pem = public_key(plant, plant.state.root / "key.pem")
    assert read_keys(pem.read_bytes()) == [row["public"].hex()]
