"""The viewer's server: access, headers, and that no text of a browser becomes SQL."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from prometheus_client import REGISTRY

from core.config.model import ViewerOptions
from core.users import passwords
from core.users.directory import UserDirectory
from core.users.passwords import hashed
from dashboards.viewer import login
from dashboards.viewer.library import Library
from dashboards.viewer.reader import ReaderPool
from dashboards.viewer.server import serve
from tests.integration.dashboards.viewer.sample_plant import CHANNEL, NOW, SINCE, UNIT
from tests.integration.dashboards.viewer.serving import reading, served
from tests.ports import free_ports
from tests.users import PASSWORD, add_users, hash_quickly, recorded_actions

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


class Guarded(NamedTuple):
    """A viewer with users: anna, an engineer, and otto, an operator."""

    page: str
    state: Path
    users: UserDirectory


@pytest.fixture
async def guarded(reader: ReaderPool, tmp_path: Path) -> AsyncIterator[Guarded]:
    users = add_users(tmp_path, anna="engineer", otto="operator")
    async with served(reader, tmp_path) as page:
        yield Guarded(page, tmp_path, users)


async def _log_in(session: aiohttp.ClientSession, guarded: Guarded, name: str, password: str = PASSWORD) -> int:
    async with session.post(f"{guarded.page}/login", json={"name": name, "password": password}) as response:
        return response.status


async def _user(session: aiohttp.ClientSession, guarded: Guarded) -> tuple[str, str] | None:
    async with session.get(f"{guarded.page}/api/user") as response:
        body = await response.json()
        return (body["name"], body["role"]) if response.status == 200 else None


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


async def test_page_of_a_dashboard_that_there_is_not_is_not_found(page: str, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{page}/") as response:
        found, tag = await response.text(), response.headers["ETag"]
    for path, status in (("plantlog-unit", 200), ("plantlog-unit/unit", 200), ("nosuch", 404), ("nosuch/unit", 404)):
        async with session.get(f"{page}/d/{path}") as response:
            assert (response.status, await response.text()) == (status, found), path
    async with session.get(f"{page}/d/nosuch", headers={"If-None-Match": tag}) as response:
        assert response.status == 404, "the page of another dashboard is not its own"


async def test_no_response_contains_sql(page: str, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{page}/api/dashboards") as response:
        known = await response.json()
    assert [entry["title"][0] for entry in known] == ["0", "1", "2", "3", "4", "5"]
    for entry in known:
        async with session.get(f"{page}/api/dashboards/{entry['uid']}") as response:
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


@pytest.mark.parametrize(
    ("chosen", "error"),
    [
        (["departure; DROP TABLE answer"], "unknown question 'departure; DROP TABLE answer'; known: aggregates, "),
        (["departure", "episodes"], "unknown question 'departure, episodes'; known: aggregates, "),
        ([], "unknown question ''; known: aggregates, "),
        (["correlation"], "correlation needs --target: name of the given channel"),
    ],
)
async def test_question_that_cannot_be_asked_is_refused(
    page: str, session: aiohttp.ClientSession, chosen: list[str], error: str
) -> None:
    panel = _panel("plantlog-forensics", "${question:text}")
    variables = {"installation": [""], "unit": [UNIT], "question": chosen}
    query = _question(dashboard="plantlog-forensics", panel=panel, variables=variables)
    async with session.post(f"{page}/api/query", json=query) as response:
        assert response.status == 400
        assert (await response.json())["error"].startswith(error)


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


async def test_users_have_to_log_in(guarded: Guarded, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{guarded.page}/", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, "/login")
    async with session.get(f"{guarded.page}/api/dashboards") as response:
        assert response.status == 401
    for name, password in (("anna", "another password"), ("nobody", PASSWORD), ("", "")):
        assert await _log_in(session, guarded, name, password) == 401
    for cookie in ("9999999999.00", "9999999999.616e6e61.00", "9999999999.zz.00", "x"):
        async with session.get(f"{guarded.page}/api/dashboards", cookies={"plantlog-viewer": cookie}) as response:
            assert response.status == 401
    recorded = [(event.text, event.detail["outcome"]) for event in recorded_actions(guarded.state)]
    assert recorded[:2] == [
        ("anna: viewer login: refused: wrong name or password", "refused"),
        ("an unknown user: viewer login: refused: wrong name or password", "refused"),
    ]


async def test_a_session_is_the_users_own(guarded: Guarded) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.post(f"{guarded.page}/login", json={"name": "anna", "password": PASSWORD}) as response:
            assert response.status == 200
            cookie = response.headers["Set-Cookie"]
            assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and PASSWORD not in cookie
        assert await _user(session, guarded) == ("anna", "engineer")
        async with session.post(f"{guarded.page}/logout", json={}) as response:
            assert response.status == 200
        assert await _user(session, guarded) is None
    events = recorded_actions(guarded.state)
    assert [event.text for event in events] == ["anna: viewer login", "anna: viewer logout"]
    assert events[0].detail["host"] == "127.0.0.1"


@pytest.mark.parametrize(
    "change", [{"enabled": False}, {"role": "auditor"}, {"password": "$argon2id$another"}], ids=str
)
async def test_a_change_of_a_user_ends_the_sessions(guarded: Guarded, change: dict[str, Any]) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        assert await _log_in(session, guarded, "otto") == 200
        assert await _user(session, guarded) == ("otto", "operator")
        guarded.users.change("otto", **change)
        assert await _user(session, guarded) is None
        if "enabled" in change:
            assert await _log_in(session, guarded, "otto") == 401
            guarded.users.change("otto", enabled=True)
            assert await _user(session, guarded) is None


async def test_programs_use_basic_authentication(guarded: Guarded, session: aiohttp.ClientSession) -> None:
    for name, password, status in (("anna", PASSWORD, 200), ("anna", "another password", 401)):
        given = {"Authorization": aiohttp.encode_basic_auth(name, password)}
        for _ in range(3):
            async with session.get(f"{guarded.page}/api/user", headers=given) as response:
                assert response.status == status
    assert len(recorded_actions(guarded.state)) == 1 + 3  # a right password is checked once, and known for a while
    guarded.users.change("anna", password=hashed("anna", "a new password of hers"))
    given = {"Authorization": aiohttp.encode_basic_auth("anna", PASSWORD)}
    async with session.get(f"{guarded.page}/api/user", headers=given) as response:
        assert response.status == 401
    async with session.get(f"{guarded.page}/api/user", headers={"Authorization": "Basic anna"}) as response:
        assert response.status == 400


@pytest.mark.parametrize("way", ["api", "login"])
async def test_wrong_passwords_are_limited(guarded: Guarded, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some wrong passwords of a user an address is told to wait; the user's session goes on, and other users."""

    async def tries(session: aiohttp.ClientSession, password: str) -> int:
        if way == "login":
            return await _log_in(session, guarded, "anna", password)
        given = {"Authorization": aiohttp.encode_basic_auth("anna", password)}
        async with session.get(f"{guarded.page}/api/dashboards", headers=given) as response:
            return response.status

    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as known,
        aiohttp.ClientSession() as stranger,
    ):
        assert await _log_in(known, guarded, "anna") == 200
        before = REGISTRY.get_sample_value("plantlog_wrong_tokens_total", {"endpoint": "viewer"}) or 0.0
        begun = time.monotonic()
        # Those of one address count before they are checked, so that many at once are no way around.
        answers = await asyncio.gather(*(tries(stranger, f"guess-{n}-of-the-password") for n in range(90)))
        assert 10 <= answers.count(401) <= 11 + (time.monotonic() - begun) / login._RETRY_SECONDS
        assert answers.count(429) == 90 - answers.count(401)
        monkeypatch.setattr(login, "_RETRY_SECONDS", 1e6)  # however long this takes
        assert await tries(stranger, PASSWORD) == 429
        assert await _log_in(stranger, guarded, "otto") == 200  # of the same address
        after = REGISTRY.get_sample_value("plantlog_wrong_tokens_total", {"endpoint": "viewer"}) or 0.0
        assert after - before == answers.count(401)
        assert await _user(known, guarded) == ("anna", "engineer")


async def test_names_of_nobody_lock_out_nobody(
    guarded: Guarded, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their passwords are checked ten times, so that users need not wait; they get the answers that users get."""
    hash_quickly(monkeypatch)
    checks: list[str] = []
    matches = passwords.matches

    def counted(known: str | None, password: str) -> bool:
        checks.append(password)
        return matches(known, password)

    monkeypatch.setattr(passwords, "matches", counted)
    monkeypatch.setattr(login, "_RETRY_SECONDS", 1e6)
    answers = await asyncio.gather(*(_log_in(session, guarded, f"nobody{n}", "guess") for n in range(60)))
    assert (answers, len(checks)) == ([401] * 60, 10)
    assert [await _log_in(session, guarded, "nobody1", "guess") for _ in range(10)] == [401] * 9 + [429]
    assert await _log_in(session, guarded, "anna") == 200


async def test_clients_of_a_trusted_proxy_are_told_apart(
    reader: ReaderPool, tmp_path: Path, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "_RETRY_SECONDS", 1e6)
    hash_quickly(monkeypatch)
    add_users(tmp_path, anna="engineer")

    async def tries(port: int, password: str, *hops: str) -> int:
        said, told = {"name": "anna", "password": password}, {"X-Forwarded-For": ", ".join(hops)}
        async with session.post(f"http://127.0.0.1:{port}/login", json=said, headers=told) as response:
            return response.status

    for proxies, other in (((), 429), (("127.0.0.1", "10.0.0.2"), 200)):
        options = ViewerOptions(port=free_ports(1), trusted_proxies=proxies)
        async with serve(options, tmp_path, reader, Library()) as port:
            guesses = [await tries(port, f"guess {n}", f"6.6.6.{n}", "10.0.0.9", "10.0.0.2") for n in range(11)]
            assert guesses == [401] * 10 + [429]
            assert await tries(port, PASSWORD, "10.0.0.9") == 429
            assert await tries(port, PASSWORD, "10.0.0.9", "10.0.0.8", "10.0.0.2") == other
    hosts = {event.detail["host"] for event in recorded_actions(tmp_path)}
    assert hosts == {"127.0.0.1", "10.0.0.9", "10.0.0.8"}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"{", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"name": "anna", "password": "\xff"}', "application/json"),
        (b'{"name": "\\ud800", "password": "\\ud800"}', "application/json"),
        (b'{"name": 1, "password": null}', "application/json"),
        (b"[]", "application/json"),
        (b"null", "application/json; charset=nonsense"),
        (b"", "application/json"),
    ],
    ids=lambda one: one[:20] if isinstance(one, bytes) else "",
)
async def test_malformed_login_is_refused(
    guarded: Guarded, session: aiohttp.ClientSession, body: bytes, content_type: str
) -> None:
    for path in ("login", "api/query", "api/alarms"):
        given = {"Content-Type": content_type}
        if path != "login":
            given["Authorization"] = aiohttp.encode_basic_auth("anna", PASSWORD)
        async with session.post(f"{guarded.page}/{path}", data=body, headers=given) as response:
            assert (response.status, list(await response.json())) == (400, ["error"])


async def test_beyond_loopback_nothing_is_shown_without_users(
    reader: ReaderPool, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    options = ViewerOptions(host="0.0.0.0", port=free_ports(1))
    async with serve(options, tmp_path, reader, Library()) as port:
        for path in ("/", "/login", "/static/app.js", "/api/dashboards"):
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                assert response.status == 503
                assert "plantlog user add NAME --role engineer" in (await response.json())["error"]
        add_users(tmp_path, anna="engineer")
        async with session.get(f"http://127.0.0.1:{port}/api/dashboards") as response:
            assert response.status == 401
        (tmp_path / "users.json").write_text("{")
        async with session.get(f"http://127.0.0.1:{port}/api/dashboards") as response:
            assert response.status == 503


async def test_unreachable_database_is_reported(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    nobody = f"postgresql://nobody:x@127.0.0.1:{free_ports(1)}/none"
    async with reading(nobody, tmp_path) as reader, served(reader) as address:
        question = _question(panel=_panel("plantlog-channel", "Trend"))
        async with session.post(f"{address}/api/query", json=question) as response:
            assert response.status == 503
            assert (await response.json())["error"] == "the database does not answer"
