"""Operators acknowledge and shelve alarms on the page; the audit trail has their names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core.config.model import AlarmOptions
from dashboards.viewer.reader import ReaderPool
from ingest.alarms import command_socket
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.alarms.operator_api import OperatorApi
from tests.alarms import source, tag
from tests.integration.dashboards.viewer.browser_page import BrowserPage, open_page, running_browser
from tests.integration.dashboards.viewer.sample_plant import CHANNEL
from tests.integration.dashboards.viewer.serving import served
from tests.memory_appender import MemoryAppender
from tests.samples import batch
from tests.users import PASSWORD, add_users, recorded_actions

_ACK = {"action": "ack", "channel": CHANNEL, "limit": "hi"}
_SHELVE = {"action": "shelve", "channel": CHANNEL, "limit": "hi", "seconds": 60, "why": "calibration"}


class Collector:
    """A collector whose pressure is too high."""

    def __init__(self, operator: OperatorApi) -> None:
        self._operator = operator

    def alarm(self) -> tuple[str, str]:
        """Its state, and who changed it."""
        [alarm] = self._operator.alarms()
        return alarm["state"], alarm["acknowledged_by"] or alarm["who"] or ""


@asynccontextmanager
async def collecting(state: Path) -> AsyncIterator[Collector]:
    evaluator = AlarmEvaluator(source(tag(CHANNEL, alarm_hi=42.0)), {CHANNEL: 1}, 1, MemoryAppender())
    operator = OperatorApi(lambda: [evaluator], AlarmOptions())
    async with command_socket.serve(state / "run" / "opcua.alarms", operator):
        await evaluator.append(batch([(1, 1, 43.0, 0)]))
        collector = Collector(operator)
        assert collector.alarm() == ("unacknowledged_active", "")
        yield collector


@pytest.fixture
async def page(reader: ReaderPool, tmp_path: Path) -> AsyncIterator[str]:
    """A viewer with an engineer, an operator and a viewer."""
    add_users(tmp_path, anna="engineer", otto="operator", vera="viewer")
    async with served(reader, tmp_path) as address:
        yield address


async def _command(page: str, user: str, command: dict[str, Any]) -> tuple[int, str]:
    given = {"Authorization": aiohttp.encode_basic_auth(user, PASSWORD)} if user else {}
    async with (
        aiohttp.ClientSession(headers=given) as session,
        session.post(f"{page}/api/alarms", json=command) as response,
    ):
        return response.status, str(await response.json())


def _trail(state: Path) -> list[str | None]:
    return [event.text for event in recorded_actions(state) if "login" not in str(event.text)]


async def test_operator_acknowledges_and_shelves(page: str, tmp_path: Path) -> None:
    async with collecting(tmp_path) as collector:
        assert await _command(page, "otto", _ACK) == (200, f"{{'done': ['{CHANNEL} hi: acknowledged_active']}}")
        assert collector.alarm() == ("acknowledged_active", "otto")
        assert (await _command(page, "anna", _SHELVE))[0] == 200
        assert collector.alarm() == ("shelved", "otto")
        assert (await _command(page, "anna", {**_ACK, "action": "unshelve"}))[0] == 200
    assert _trail(tmp_path)[:4] == [
        f"otto: alarms ack channel={CHANNEL} limit=hi: begun",
        f"otto: alarms ack channel={CHANNEL} limit=hi",
        f"anna: alarms shelve channel={CHANNEL} limit=hi why=calibration seconds=60: begun",
        f"anna: alarms shelve channel={CHANNEL} limit=hi why=calibration seconds=60",
    ]


async def test_viewer_may_not(page: str, tmp_path: Path) -> None:
    async with collecting(tmp_path) as collector:
        assert await _command(page, "vera", _ACK) == (
            403, "{'error': 'user vera has the role viewer; legal: engineer or operator'}",
        )  # fmt: skip
        assert (await _command(page, "", _ACK))[0] == 401
        (tmp_path / "users.json").unlink()
        assert (await _command(page, "", _ACK))[0] == 403  # open, but nobody has a name
        assert collector.alarm()[0] == "unacknowledged_active"
    [refused] = _trail(tmp_path)
    assert refused is not None and ": refused: user vera has the role viewer" in refused


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"channel": "*"}, 400, "channel: "),
        ({"action": "suppress"}, 400, "action: "),
        ({"seconds": 0}, 400, "seconds: "),
        ({"who": "root"}, 400, "who: "),
        ({"logged_in": False}, 400, "logged_in: "),
        ({"channel": "a/b"}, 409, "no channel matches a/b"),
        ({"action": "shelve", "seconds": 60}, 409, "requires a reason"),
        ({"action": "shelve", "seconds": 10**7, "why": "x"}, 409, "at most"),
        ({"action": "unshelve"}, 409, "nothing to unshelve"),
    ],
    ids=str,
)
async def test_wrong_command_is_refused(
    page: str, tmp_path: Path, change: dict[str, Any], status: int, message: str
) -> None:
    async with collecting(tmp_path) as collector:
        answer = await _command(page, "otto", {**_ACK, **change})
        assert (answer[0], message in answer[1]) == (status, True), answer
        assert collector.alarm()[0] == "unacknowledged_active"
    outcomes = [str(text).rpartition("limit=hi")[2] for text in _trail(tmp_path)]
    assert len(outcomes) == (2 if status == 409 else 0)


async def test_what_cannot_be_done_or_recorded_is_not(page: str, tmp_path: Path) -> None:
    status, error = await _command(page, "otto", _ACK)
    assert (status, "no collector is running" in error) == (409, True)
    (tmp_path / "spool" / "audit.sqlite").unlink()
    (tmp_path / "spool" / "audit.sqlite").mkdir()
    async with collecting(tmp_path) as collector:
        status, error = await _command(page, "otto", _ACK)
        assert (status, "can't be recorded" in error) == (503, True)
        assert collector.alarm()[0] == "unacknowledged_active"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 390])
async def test_page_has_buttons_for_operators(page: str, tmp_path: Path, width: int) -> None:
    async with running_browser() as browser, collecting(tmp_path) as collector:
        look = await open_page(browser, page, width)
        await _log_in(look, "otto")
        await look.open("plantlog-plant")
        assert await look.page.locator("#user").inner_text() == "otto Log out"
        await look.screenshot("operator", tmp_path)
        for button in await look.page.locator("td.actions button").all():
            box = await button.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        async with _refreshed(look):
            await look.page.get_by_role("button", name=f"Acknowledge {CHANNEL} hi").click()
        assert collector.alarm()[0] == "acknowledged_active"
        await look.page.get_by_role("button", name=f"Shelve {CHANNEL} hi").click()
        dialog = look.page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Shelve").click()  # nothing happens without a reason
        await dialog.get_by_label("Why").fill("calibration")
        await dialog.get_by_label("For").select_option("4 hours")
        await look.screenshot("shelve", tmp_path)
        async with _refreshed(look):
            await dialog.get_by_role("button", name="Shelve").click()
        assert collector.alarm()[0] == "shelved"
        assert look.wrong == []
        await look.page.get_by_role("button", name=f"Acknowledge {CHANNEL} hi").click()
        await look.page.get_by_text("nothing to ack").wait_for()  # the database still has the former state
        await look.page.get_by_role("button", name="Log out").click()
        await look.page.wait_for_url(f"{page}/login")
        await _log_in(look, "vera")
        await look.open("plantlog-plant")
        assert await look.page.locator("td.actions").count() == 0


@asynccontextmanager
async def _refreshed(look: BrowserPage) -> AsyncIterator[None]:
    """The page sends a command in the block, and asks again when it is done."""
    async with look.page.expect_request("**/api/query"), look.page.expect_response("**/api/alarms"):
        yield
    await look.wait_until_loaded()


async def _log_in(look: BrowserPage, name: str) -> None:
    await look.go("/login")
    await look.page.get_by_label("User").fill(name)
    await look.page.get_by_label("Password").fill(PASSWORD)
    await look.page.get_by_role("button", name="Sign in").click()
    await look.opened("plantlog-plant")  # to leave while it asks the database would cut connections
