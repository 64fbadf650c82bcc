"""The viewer's page in headless Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, ConsoleMessage, Error, Page, async_playwright

from tests.waiting import PATIENCE

# Chromium drops all requests that are under way when an interface of the machine gets an address or loses it, as those
# of tests with containers do.
_NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
_SETTLED = """
[...document.querySelectorAll('.panel')].every((panel) => panel.dataset.state !== 'waiting')
&& !document.querySelector('.panel.asking')
"""
_STATES = """
Object.fromEntries(
  [...document.querySelectorAll('.panel')].map((panel) => [
    panel.querySelector('h2').textContent,
    panel.querySelector('p.failed')?.textContent ?? panel.dataset.state,
  ]),
)
"""


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A browser of this machine."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "Chromium is missing: apt-get install chromium"
    async with async_playwright() as playwright:
        # Whoever runs tests as root in a container has no name spaces for Chromium's own sandbox.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=found, args=arguments)
        yield browser
        await browser.close()


class BrowserPage:
    """A page, and what went wrong in it."""

    def __init__(self, page: Page, where: str) -> None:
        self.page = page
        self.where = where
        self.wrong: list[str] = []
        self._dropped = False  # whether Chromium dropped requests since the page was gone to
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if _NETWORK_CHANGED in message.text:  # the page sends requests again
            self._dropped = True
        elif message.type in ("error", "warning"):
            self.wrong.append(message.text)

    async def go(self, path: str) -> None:
        """Go to a page of the viewer, again if some of its files were dropped."""
        while True:
            self._dropped = False
            try:
                await self.page.goto(f"{self.where}{path}")
            except Error as error:
                if _NETWORK_CHANGED not in str(error):
                    raise
            else:
                if not self._dropped:
                    return

    async def open(self, uid: str, since: str = "now-45m", until: str = "now", **variables: str) -> None:
        """Open a dashboard and wait until all its panels have been answered."""
        given = "".join(f"&var-{name}={value}" for name, value in variables.items())
        await self.go(f"/d/{uid}?from={since}&to={until}&refresh=off{given}")
        await self.opened(uid)

    async def opened(self, uid: str) -> None:
        """Wait until that dashboard is shown whole: panels are asked as they come into sight."""
        await self.page.locator(f"html[data-opened={uid}]").wait_for(state="attached")
        height = await self.page.evaluate("document.documentElement.scrollHeight")
        width = self.page.viewport_size["width"] if self.page.viewport_size else 1400
        await self.page.set_viewport_size({"width": width, "height": min(height + 100, 8000)})
        await self.wait_until_loaded()

    async def wait_until_loaded(self) -> None:
        """Wait until nothing is asked any more."""
        while not await self.page.evaluate(_SETTLED):
            await self.page.wait_for_timeout(50)

    async def states(self) -> dict[str, str]:
        """Title → shown, empty, or why it failed."""
        found: dict[str, str] = await self.page.evaluate(_STATES)
        return found

    async def screenshot(self, name: str, folder: Path) -> None:
        """Keep a screenshot."""
        kept = Path(os.environ.get("PLANTLOG_SCREENSHOTS") or folder)
        await self.page.screenshot(path=kept / f"{name}.png", full_page=True)


async def open_page(
    browser: Browser, where: str, width: int = 1400, scheme: str = "light", zone: str = "UTC"
) -> BrowserPage:
    """A new page of the viewer at ``where``."""
    page = await browser.new_page(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        timezone_id=zone,
    )
    page.set_default_timeout(PATIENCE * 1000)
    return BrowserPage(page, where)
