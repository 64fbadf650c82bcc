"""The page in a real browser, headless Chromium: what is drawn is looked for in the page's state and in its pixels.

Screenshots go to the folder that PLANTLOG_SCREENSHOTS names, else to the test's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser

from dashboards.viewer.library import Library
from tests.database import Database
from tests.integration.viewer.filled import CHANNEL, UNIT, filled_until
from tests.integration.viewer.look import look_at
from tests.integration.viewer.look import opened as chromium
from tests.patience import PATIENCE

_SHOWN = {
    "plantlog-health": {},
    "plantlog-plant": {},
    "plantlog-unit": {"unit": UNIT},
    "plantlog-channel": {"unit": UNIT, "channel": CHANNEL, "compare": "600"},
    "plantlog-forensics": {"channels": f"{UNIT}/*"},
    "plantlog-storage": {},
}
# Of each canvas: how many of its pixels are not those of its most frequent colour.
_PAINTED = """
[...document.querySelectorAll('canvas')].map((canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const counts = new Map();
  for (let i = 0; i < data.length; i += 4) {
    const key = `${data[i]},${data[i + 1]},${data[i + 2]},${data[i + 3]}`;
    counts.set(key, (counts.get(key) || 0) + 1);
  }
  return data.length / 4 - Math.max(...counts.values());
})
"""


@pytest.fixture(scope="module")
def filled(server: str) -> Iterator[Database]:
    """One of this moment: the page asks for the last 45 minutes, and other tests may have taken as long."""
    with filled_until(server, "filled_now", datetime.now(UTC).replace(microsecond=0)) as database:
        yield database


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest.mark.parametrize("uid", [one.uid for one in Library()])
async def test_a_dashboard_shows_its_data(browser: Browser, page: str, uid: str, tmp_path: Path) -> None:
    look = await look_at(browser, page)
    await look.open(uid, **_SHOWN[uid])
    await look.shoot(uid, tmp_path)
    assert set((await look.states()).values()) == {"shown"}, await look.states()
    assert all(count > 100 for count in await look.page.evaluate(_PAINTED))
    assert look.wrong == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1400, "dark")])
async def test_it_fits_a_phone_and_the_dark(
    browser: Browser, page: str, width: int, scheme: str, tmp_path: Path
) -> None:
    look = await look_at(browser, page, width, scheme)
    for uid in ("plantlog-plant", "plantlog-channel"):
        await look.open(uid, **_SHOWN[uid])
        await look.shoot(f"{uid}-{scheme}-{width}", tmp_path)
        assert await look.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        ground = await look.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(18, 24, 28)") == (scheme == "dark")
    assert look.wrong == []


async def test_drilling_down_keeps_the_time(browser: Browser, page: str) -> None:
    look = await look_at(browser, page)
    await look.open("plantlog-plant")
    await look.page.get_by_role("link", name=UNIT, exact=True).click()
    await look.opened("plantlog-unit")
    await look.page.get_by_role("link", name="pressure", exact=True).first.click()
    await look.opened("plantlog-channel")
    assert "from=now-45m&to=now" in look.page.url
    assert await look.page.locator("#variables").inner_text() == (
        f"Unit\n{UNIT}\nChannel\npressure\nCompare with\nan hour earlier"
    )
    assert (await look.states())["Curve"] == "shown"
    await look.page.go_back()
    await look.opened("plantlog-unit")
    assert look.wrong == []


async def test_dragging_zooms(browser: Browser, page: str) -> None:
    look = await look_at(browser, page)
    await look.open("plantlog-channel", **_SHOWN["plantlog-channel"])
    box = await look.page.locator("[data-panel] .u-over").first.bounding_box()
    assert box is not None
    await look.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    await look.page.mouse.down()
    await look.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=5)
    await look.page.mouse.up()
    await look.page.wait_for_url(lambda url: "from=now-45m" not in url)
    await look.settled()
    since, until = await look.page.evaluate(
        "['from', 'to'].map((n) => Number(new URLSearchParams(location.search).get(n)))"
    )
    assert 8 * 60_000 < until - since < 10 * 60_000
    assert (await look.states())["Curve"] == "shown"
    assert look.wrong == []


async def test_another_channel_is_asked_for(browser: Browser, page: str) -> None:
    look = await look_at(browser, page)
    await look.open("plantlog-channel", **_SHOWN["plantlog-channel"])
    before = await look.page.locator(".stat .value").first.inner_text()
    await look.page.get_by_role("button", name="pressure").click()
    await look.page.get_by_role("searchbox").fill("steam")
    await look.page.get_by_role("option", name="steam_flow").click()
    await look.page.locator("html[data-changed=channel]").wait_for(state="attached")
    await look.settled()
    after = await look.page.locator(".stat .value").first.inner_text()
    assert before.endswith("bar")
    assert after.endswith("t/h")
    assert "steam_flow" in look.page.url
    assert look.wrong == []


async def test_a_relative_time_is_chosen(browser: Browser, page: str) -> None:
    look = await look_at(browser, page)
    await look.open("plantlog-health")
    await look.page.locator("#range").click()
    await look.page.get_by_text("Last 6 hours").click()
    await look.settled()
    assert "from=now-6h&to=now" in look.page.url
    assert set((await look.states()).values()) == {"shown"}
    assert look.wrong == []


async def test_a_gap_says_why(browser: Browser, page: str) -> None:
    look = await look_at(browser, page)
    await look.open("plantlog-channel", **_SHOWN["plantlog-channel"])
    over = look.page.locator("[data-panel] .u-over").first
    await over.scroll_into_view_if_needed()
    box = await over.bounding_box()
    assert box is not None
    said = ""
    async with asyncio.timeout(PATIENCE):
        while "disconnected – no route" not in said:
            for part in range(2, 100, 4):
                await look.page.mouse.move(box["x"] + box["width"] * part / 100, box["y"] + 40)
                said += await look.page.locator("#tip").inner_text()
