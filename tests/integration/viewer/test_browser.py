"""The page in a real browser, headless Chromium: what is drawn is looked for in the page's state and in its pixels.

Screenshots go to the folder that PLANTLOG_SCREENSHOTS names, else to the test's own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from dashboards.viewer.library import Library
from tests.integration.viewer.filled import CHANNEL, UNIT

_SHOWN = {
    "plantlog-health": {},
    "plantlog-plant": {},
    "plantlog-unit": {"unit": UNIT},
    "plantlog-channel": {"unit": UNIT, "channel": CHANNEL, "compare": "600"},
    "plantlog-forensics": {"channels": f"{UNIT}/*"},
    "plantlog-storage": {},
}
_SETTLED = """
[...document.querySelectorAll('.panel')].every((panel) => panel.dataset.state !== 'waiting')
&& !document.querySelector('.panel.asking')
"""
_STATES = """
Object.fromEntries(
  [...document.querySelectorAll('.panel')].map((panel) => [panel.querySelector('h2').textContent, panel.dataset.state]),
)
"""
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


def _chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "these tests need Chromium: apt-get install chromium"
    return found


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # Whoever runs tests as root in a container has no name spaces for Chromium's own sandbox.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = await playwright.chromium.launch(executable_path=_chromium(), args=arguments)
        yield opened
        await opened.close()


class Look:
    """A page, and what went wrong in it."""

    def __init__(self, page: Page, where: str) -> None:
        self.page = page
        self.where = where
        self.wrong: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    async def open(self, uid: str, since: str = "now-45m", **variables: str) -> None:
        """Open a dashboard and wait until all its panels have been answered."""
        given = "".join(f"&var-{name}={value}" for name, value in variables.items())
        await self.page.goto(f"{self.where}/d/{uid}?from={since}&to=now&refresh=off{given}")
        await self.opened(uid)

    async def opened(self, uid: str) -> None:
        """Wait until that dashboard is shown whole: panels are asked as they come into sight."""
        await self.page.locator(f"html[data-opened={uid}]").wait_for(state="attached")
        height = await self.page.evaluate("document.documentElement.scrollHeight")
        width = self.page.viewport_size["width"] if self.page.viewport_size else 1400
        await self.page.set_viewport_size({"width": width, "height": min(height + 100, 8000)})
        await self.settled()

    async def settled(self) -> None:
        """Wait until nothing is asked any more."""
        while not await self.page.evaluate(_SETTLED):
            await self.page.wait_for_timeout(50)

    async def states(self) -> dict[str, str]:
        """Title → shown, empty or failed."""
        found: dict[str, str] = await self.page.evaluate(_STATES)
        return found

    async def shoot(self, name: str, folder: Path) -> None:
        """Keep a screenshot."""
        kept = Path(os.environ.get("PLANTLOG_SCREENSHOTS") or folder)
        await self.page.screenshot(path=kept / f"{name}.png", full_page=True)


async def _look(browser: Browser, where: str, width: int = 1400, scheme: str = "light") -> Look:
    page = await browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page.set_default_timeout(60_000)
    return Look(page, where)


@pytest.mark.parametrize("uid", [one.uid for one in Library()])
async def test_a_dashboard_shows_its_data(browser: Browser, page: str, uid: str, tmp_path: Path) -> None:
    look = await _look(browser, page)
    await look.open(uid, **_SHOWN[uid])
    await look.shoot(uid, tmp_path)
    assert set((await look.states()).values()) == {"shown"}, await look.states()
    assert all(count > 100 for count in await look.page.evaluate(_PAINTED))
    assert look.wrong == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1400, "dark")])
async def test_it_fits_a_phone_and_the_dark(
    browser: Browser, page: str, width: int, scheme: str, tmp_path: Path
) -> None:
    look = await _look(browser, page, width, scheme)
    for uid in ("plantlog-plant", "plantlog-channel"):
        await look.open(uid, **_SHOWN[uid])
        await look.shoot(f"{uid}-{scheme}-{width}", tmp_path)
        assert await look.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        ground = await look.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(18, 24, 28)") == (scheme == "dark")
    assert look.wrong == []


async def test_drilling_down_keeps_the_time(browser: Browser, page: str) -> None:
    look = await _look(browser, page)
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
    look = await _look(browser, page)
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
    look = await _look(browser, page)
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
    look = await _look(browser, page)
    await look.open("plantlog-health")
    await look.page.locator("#range").click()
    await look.page.get_by_text("Last 6 hours").click()
    await look.settled()
    assert "from=now-6h&to=now" in look.page.url
    assert set((await look.states()).values()) == {"shown"}
    assert look.wrong == []


async def test_a_gap_says_why(browser: Browser, page: str) -> None:
    look = await _look(browser, page)
    await look.open("plantlog-channel", **_SHOWN["plantlog-channel"])
    over = look.page.locator("[data-panel] .u-over").first
    box = await over.bounding_box()
    assert box is not None
    said = ""
    async with asyncio.timeout(60):
        while "disconnected – no route" not in said:  # somewhere between 20 and 15 minutes before the end
            for part in range(50, 72, 2):
                await over.hover(position={"x": box["width"] * part / 100, "y": 40})
                said += await look.page.locator("#tip").inner_text()
