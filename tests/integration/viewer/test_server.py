"""Who gets what: access, headers, and that nothing of a browser becomes SQL."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import REGISTRY

from dashboards.viewer import login_attempts
from dashboards.viewer.library import Library
from dashboards.viewer.reader import Reader
from dashboards.viewer.server import serve, token_of
from ingest.config.model import ViewerOptions
from ingest.errors import OperationError
from ops.ports import free_ports
from tests.integration.viewer.sample_plant import CHANNEL, NOW, SINCE, UNIT
from tests.integration.viewer.serving import reading, served

_TOKEN = "a-token-of-these-tests"
_STRANGE = [
    "'; DROP TABLE plant.event; --",
    "' OR ''='",
    "x') UNION SELECT rolname FROM pg_roles --",
    "$1",
    "${unit:sqlstring}",
    "$__timeFrom()",
    "\\'; SELECT 1 --",
    "a\u0000b",
    "\ud83d\ude00 \u202e",
]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
async def guarded(reader: Reader, tmp_path: Path) -> AsyncIterator[str]:
    """Where a viewer answers that asks for a token."""
    file = tmp_path / "token"
    file.write_text(_TOKEN + "\n")
    options = ViewerOptions(port=free_ports(1), token_file=file)
    async with serve(options, reader, Library()) as port:
        yield f"http://127.0.0.1:{port}"


def _question(**given: Any) -> dict[str, Any]:
    return {
        "dashboard": "plantlog-channel",
        "since": int(SINCE.timestamp() * 1000),
        "until": int(NOW.timestamp() * 1000),
        "interval": 5000,
        "variables": {"unit": [UNIT], "channel": [CHANNEL], "compare": ["600"]},
        **given,
    }


def _panel(uid: str, title: str) -> int:
    return next(int(panel["id"]) for panel in Library().dashboard(uid).panels() if panel["title"] == title)


async def test_a_panel_is_answered_in_columns(page: str, session: aiohttp.ClientSession) -> None:
    question = _question(panel=_panel("plantlog-channel", "Trend"))
    async with session.post(f"{page}/api/query", json=question) as response:
        body = await response.json()
        assert response.status == 200, body
    assert [field["name"] for field in body["A"]["fields"]] == ["time", "lowest", "highest", "mean"]
    assert len({len(column) for column in body["A"]["columns"]}) == 1
    assert body["Unit"]["columns"][0] == ["suffix:bar"]


async def test_every_response_has_security_headers(page: str, session: aiohttp.ClientSession) -> None:
    for path in ("/", "/static/app.js", "/api/dashboards", "/static/../server.py", "/nowhere"):
        async with session.get(page + path) as response:
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            assert "unsafe" not in response.headers["Content-Security-Policy"]
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert (response.status == 200) == (path in ("/", "/static/app.js", "/api/dashboards"))


async def test_unchanged_file_is_not_sent_again(page: str, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{page}/static/app.js") as response:
        tag = response.headers["ETag"]
    async with session.get(f"{page}/static/app.js", headers={"If-None-Match": tag}) as response:
        assert response.status == 304


async def test_no_response_contains_sql(page: str, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{page}/api/dashboards") as response:
        known = await response.json()
    assert [one["title"][0] for one in known] == ["0", "1", "2", "3", "4", "5"]
    for one in known:
        async with session.get(f"{page}/api/dashboards/{one['uid']}") as response:
            assert "SELECT" not in await response.text()


@pytest.mark.parametrize("value", _STRANGE)
async def test_variable_value_is_never_sql(page: str, session: aiohttp.ClientSession, value: str) -> None:
    strange = {"unit": [value], "channel": [value], "compare": [value]}
    for panel in (_panel("plantlog-channel", "Trend"), _panel("plantlog-channel", "Gaps")):
        body = json.dumps(_question(panel=panel, variables=strange))
        async with session.post(
            f"{page}/api/query", data=body, headers={"Content-Type": "application/json"}
        ) as response:
            answer = await response.json()
            if "\u0000" in value or "\ud83d" in value:
                assert response.status in (200, 400, 503), answer
                continue
            assert response.status == 200, answer
            assert all(not column for column in answer["A"]["columns"])
    async with session.post(f"{page}/api/query", json=_question(panel=_panel("plantlog-channel", "Gaps"))) as response:
        assert (await response.json())["A"]["columns"][0]


async def test_invalid_number_is_refused_by_the_database(page: str, session: aiohttp.ClientSession) -> None:
    strange = {"unit": [UNIT], "channel": [CHANNEL], "compare": ["600; SELECT 1"]}
    question = _question(panel=_panel("plantlog-channel", "Compared with ${compare:text}"), variables=strange)
    async with session.post(f"{page}/api/query", json=question) as response:
        assert response.status == 400
        assert "600; SELECT 1" in (await response.json())["error"]


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"panel": 9999}, 404),
        ({"dashboard": "other", "panel": 1}, 404),
        ({}, 400),
        ({"panel": 1, "sql": "SELECT 1"}, 400),
        ({"panel": "1"}, 400),
    ],
)
async def test_invalid_query_gets_an_error_message(
    page: str, session: aiohttp.ClientSession, given: dict[str, Any], status: int
) -> None:
    async with session.post(f"{page}/api/query", json=_question(**given)) as response:
        assert response.status == status
        assert (await response.json())["error"]


async def test_cross_origin_request_is_refused(page: str, session: aiohttp.ClientSession) -> None:
    question = _question(panel=_panel("plantlog-channel", "Trend"))
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    async with session.post(f"{page}/api/query", json=question, headers=foreign) as response:
        assert response.status == 403
    async with session.post(f"{page}/api/query", data=json.dumps(question)) as response:
        assert response.status == 415
    async with session.get(f"{page}/api/dashboards", headers={"Host": "plant.example:80"}) as response:
        assert response.status == 403  # a name that somebody else's name server resolves to loopback


async def test_token_is_required(guarded: str, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{guarded}/", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, "/login")
    async with session.get(f"{guarded}/api/dashboards") as response:
        assert response.status == 401
    async with session.get(f"{guarded}/api/dashboards", headers={"Authorization": f"Bearer {_TOKEN}"}) as response:
        assert response.status == 200
    async with session.post(f"{guarded}/login", json={"token": "another"}) as response:
        assert response.status == 401
    async with session.get(f"{guarded}/api/dashboards", cookies={"plantlog-viewer": "9999999999.00"}) as response:
        assert response.status == 401


@pytest.mark.parametrize("way", ["api", "login"])
async def test_wrong_tokens_are_limited(guarded: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some wrong tokens an address is told to wait, whatever it says next; a session goes on."""

    async def tries(session: aiohttp.ClientSession, token: str) -> int:
        if way == "login":
            async with session.post(f"{guarded}/login", json={"token": token}) as response:
                return response.status
        given = {"Authorization": f"Bearer {token}"}
        async with session.get(f"{guarded}/api/dashboards", headers=given) as response:
            return response.status

    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as known,
        aiohttp.ClientSession() as stranger,
    ):
        async with known.post(f"{guarded}/login", json={"token": _TOKEN}) as response:
            assert response.status == 200
        before = REGISTRY.get_sample_value("plantlog_wrong_tokens_total", {"endpoint": "viewer"}) or 0.0
        begun = time.monotonic()
        answers = [await tries(stranger, f"guess-{n}-of-the-token") for n in range(200)]
        assert 10 <= answers.count(401) <= 11 + (time.monotonic() - begun) / login_attempts._RETRY_SECONDS
        assert answers.count(429) == 200 - answers.count(401)
        monkeypatch.setattr(login_attempts, "_RETRY_SECONDS", 1e6)  # however long this takes
        assert await tries(stranger, _TOKEN) == 429
        after = REGISTRY.get_sample_value("plantlog_wrong_tokens_total", {"endpoint": "viewer"}) or 0.0
        assert after - before == answers.count(401)
        async with known.get(f"{guarded}/api/dashboards") as response:
            assert response.status == 200


async def test_the_token_opens_a_session(guarded: str) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.post(f"{guarded}/login", json={"token": _TOKEN}) as response:
            assert response.status == 200
            cookie = response.headers["Set-Cookie"]
            assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and _TOKEN not in cookie
        async with session.get(f"{guarded}/api/dashboards") as response:
            assert response.status == 200


def test_token_is_needed_beyond_loopback(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="token_file is required"):
        token_of(ViewerOptions(host="0.0.0.0"))
    short = tmp_path / "token"
    short.write_text("short")
    with pytest.raises(OperationError, match="16"):
        token_of(ViewerOptions(host="0.0.0.0", token_file=short))


async def test_unreachable_database_is_reported(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    nobody = f"postgresql://nobody:x@127.0.0.1:{free_ports(1)}/none"
    async with reading(nobody, tmp_path) as reader, served(reader) as address:
        question = _question(panel=_panel("plantlog-channel", "Trend"))
        async with session.post(f"{address}/api/query", json=question) as response:
            assert response.status == 503
            assert "does not answer" in (await response.json())["error"]
