"""Tokens of gateways change while the push endpoint serves: real requests to a real collector, by the real commands."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from core.config import token_file
from core.config.token_file import hash_of
from core.errors import OperationError
from core.registry import Registry
from ingest.push import gateways
from ingest.push.tokens import Tokens
from ops import tokens
from ops.deployment import Deployment, Running
from tests.integration.ingest.test_push import Site, site_in
from tests.waiting import until

_FIRST = "token-of-edge-gateway"
_SOON = 1.0  # s, within which a change is in force


def authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Token {token}"}


def file_of(site: Site) -> Path:
    return site.root / "p" / "edge.token"


async def status(site: Site, token: str) -> int:
    return (await site.push(b"boiler pressure=1 1000", headers=authorization(token))).status


async def remark(site: Site, source: int = 0) -> str:
    return str((await site.health())["sources"][source]["remarks"].get("token_file", ""))


@asynccontextmanager
async def streaming(site: Site, token: Callable[[], str]) -> AsyncIterator[list[int]]:
    """Bodies one after the other with the gateway's token, each with a sample of its own; gives the answers."""
    answers: list[int] = []
    stop = asyncio.Event()

    async def stream() -> None:
        async with aiohttp.ClientSession() as session:
            while not stop.is_set():
                line = b"boiler pressure=%d %d000" % (len(answers), len(answers) + 1)
                answers.append((await site.push(line, headers=authorization(token()), session=session)).status)

    async with asyncio.TaskGroup() as group:
        group.create_task(stream())
        await until(lambda: len(answers) > 10)
        yield answers
        seen = len(answers)
        await until(lambda: len(answers) > seen + 10)
        stop.set()


async def test_rotation_under_a_stream_of_writes_refuses_nothing(tmp_path: Path) -> None:
    """Each new token is used as soon as it is known, and the former one removed: again and again."""
    site = site_in(tmp_path)
    current = _FIRST

    async def known(token: str) -> bool:
        return await status(site, token) == 204

    async def refused(token: str) -> bool:
        return await status(site, token) == 401

    async with site.running(), streaming(site, lambda: current) as answers:
        for _ in range(3):
            former, new = current, tokens.add(file_of(site), "edge", site.state)
            await until(lambda new=new: known(new))
            assert await known(former)
            current = new
            seen = len(answers)
            await until(lambda seen=seen: len(answers) > seen + 10)
            removed = tokens.remove(file_of(site), "edge", hash_of(former).digest.hex()[:12], site.state)
            assert removed.digest == hash_of(former).digest
            await until(lambda former=former: refused(former))
        assert list((await site.health())["tokens"]["edge"]) == [hash_of(current).short]
    assert set(answers) == {204}
    streamed = sorted(row for row in site.samples() if row != (1, 1, 1.0))
    assert streamed == [(1, number + 1, float(number)) for number in range(len(answers))], "each once"


async def test_change_is_in_force_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in looks at the files, so that a busy machine changes nothing: two, a quarter of a second apart."""
    assert gateways._TOKEN_SECONDS * 2 < _SOON
    looks: list[float] = []
    take = Tokens.refresh

    async def counted(self: Tokens) -> None:
        await take(self)
        looks.append(time.monotonic())

    monkeypatch.setattr(Tokens, "refresh", counted)
    site = site_in(tmp_path)
    async with site.running():
        token_file.write(file_of(site), "another-token-of-the-edge")
        seen = len(looks)
        await until(lambda: len(looks) >= seen + 3)  # one look may have begun before
        assert await status(site, _FIRST) == 401
        assert await status(site, "another-token-of-the-edge") == 204


async def test_broken_file_is_reported_and_the_former_tokens_stay(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    valid = file_of(site).read_text()

    async def reported(what: str) -> bool:
        return what in await remark(site) and "the former tokens stay valid" in await remark(site)

    async with site.running():
        for content, what in (
            ("", "found no hash"),
            (
                "a-plain-token-of-a-gateway\n",
                "found a token in line 1; legal: its hash: run plantlog source token hash edge",
            ),
            (valid + "sha256:12\n", "found no hash in line 2"),
        ):
            file_of(site).write_text(content)
            await until(lambda what=what: reported(what))
            assert await status(site, _FIRST) == 204
            assert await status(site, "a-plain-token-of-a-gateway") == 401
            assert "a-plain-token" not in await remark(site)
        file_of(site).unlink()
        await until(lambda: reported("cannot be read: No such file or directory"))
        assert await status(site, _FIRST) == 204
        token_file.write(file_of(site), "a-plain-token-of-a-gateway")

        async def mended() -> bool:
            return not await remark(site)

        await until(mended)
        assert await status(site, _FIRST) == 401
        assert await status(site, "a-plain-token-of-a-gateway") == 204


async def test_collector_starts_with_a_broken_file_and_other_gateways_push(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    other = tmp_path / "p" / "other.token"
    token_file.write(other, "token-of-other-gateway")
    site = site_in(
        tmp_path, more='[[source]]\nname = "other"\nkind = "push"\ntoken_file = "other.token"\ncounts = ["x"]\n'
    )
    Registry(
        {"edge": 1, "other": 2},
        {"edge": {"boiler/pressure": 1, "boiler/mode": 2}, "other": {}},
        {"edge": {}, "other": {}},
    ).save(site.state.registry)
    other.write_text("token-of-other-gateway\n")
    async with site.running():
        assert "no token is valid" in await remark(site)
        assert await status(site, _FIRST) == 204
        assert await status(site, "token-of-other-gateway") == 401
        token_file.write(other, _FIRST)
        await until(lambda: _says(site, f"found token {hash_of(_FIRST).short} of source edge"))
        assert await status(site, _FIRST) == 204
        # Crosswise: for a moment each has the other's
        token_file.write(other, "token-of-other-gateway")
        await until(lambda: _says(site, ""))
        former = file_of(site).read_bytes()
        file_of(site).write_bytes(other.read_bytes())
        other.write_bytes(former)

        async def exchanged() -> bool:
            hashes = (await site.health())["tokens"]
            return list(hashes["other"]) == [hash_of(_FIRST).short] and not await remark(site)

        await until(exchanged)
        assert await status(site, "token-of-other-gateway") == 204


async def _says(site: Site, text: str) -> bool:
    found = await remark(site)
    return text in found if text else not found


async def test_plain_token_is_replaced_by_its_hash_and_stays_valid(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    file_of(site).write_text(f"{_FIRST}\n")
    replaced = tokens.hash_plain(file_of(site), "edge", site.state)
    assert replaced is not None
    assert replaced.digest == hash_of(_FIRST).digest
    assert _FIRST not in file_of(site).read_text()
    assert tokens.hash_plain(file_of(site), "edge", site.state) is None, "safe to repeat"
    async with site.running():
        assert await status(site, _FIRST) == 204


async def test_list_shows_when_a_token_was_used_last(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    new = tokens.add(file_of(site), "edge", site.state)
    site.state.run.mkdir(exist_ok=True)
    Deployment(site.root / "p" / "plant.toml", simulator=False).save(site.state)
    Running("demo", site.plant.health, ("collector-push",)).save(site.state)
    assert [token.used_at for token in tokens.list_tokens("edge", None, site.state)] == [None, None]
    async with site.running():
        before = time.time() * 1e6
        assert await status(site, new) == 204
        listed = await asyncio.to_thread(tokens.list_tokens, None, None, site.state)
    assert [(token.source, token.short) for token in listed] == [("edge", hash_of(t).short) for t in (_FIRST, new)]
    assert listed[0].used_at == 0
    assert listed[1].used_at is not None
    assert listed[1].used_at >= before - 1
    assert listed[1].comment.startswith("created 20")


def test_commands_refuse_what_would_lock_out_a_gateway(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    file = file_of(site)
    short = hash_of(_FIRST).short
    with pytest.raises(OperationError, match=f"{short} is the only token of source edge: add another one first"):
        tokens.remove(file, "edge", short, site.state)
    with pytest.raises(OperationError, match="'ab' is too short"):
        tokens.remove(file, "edge", "ab", site.state)
    for _ in range(7):
        tokens.add(file, "edge", site.state)
    with pytest.raises(OperationError, match="has 8 tokens: remove one first"):
        tokens.add(file, "edge", site.state)
    with pytest.raises(OperationError, match="has no token whose hash begins with 0000000000000000"):
        tokens.remove(file, "edge", "0" * 16, site.state)
    assert len(token_file.parse(file.read_bytes(), "edge").hashes) == 8
    with pytest.raises(OperationError, match="has no push source nobody with a token_file; it has edge"):
        tokens.token_file_of("nobody", tmp_path / "p" / "plant.toml", site.state)
    file.write_text("x\n")
    with pytest.raises(OperationError, match="with 1 characters; legal: one line of 16 or more"):
        tokens.hash_plain(file, "edge", site.state)
    with pytest.raises(OperationError, match="found a token in line 1; legal: its hash"):
        tokens.add(file, "edge", site.state)
    file.write_text("a-first-line-of-something-else\na-second-line-of-something-else\n")
    with pytest.raises(OperationError, match="found no hash in line 1"):
        tokens.hash_plain(file, "edge", site.state)
    assert file.read_text().startswith("a-first-line")


def test_new_file_is_made_and_comments_owner_and_link_are_kept(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    file = tmp_path / "p" / "new" / "edge.tokens"
    first = tokens.add(file, "edge", site.state)
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(f"# of the gateway in the north\n\n{file.read_text()}")
    if os.geteuid() == 0:
        os.chown(file, 12345, 12345)
    link = tmp_path / "link"
    link.symlink_to(file)
    tokens.add(link, "edge", site.state)
    tokens.remove(link, "edge", hash_of(first).short, site.state)
    assert link.is_symlink()
    assert file.read_text().startswith("# of the gateway in the north\n\nsha256:")
    assert len(token_file.parse(file.read_bytes(), "edge").hashes) == 1
    assert file.stat().st_uid == (12345 if os.geteuid() == 0 else os.geteuid())
