"""The page in a real browser, headless Chromium: what is drawn is looked for in the page's state and in its pixels.

Screenshots go to the folder that PLANTLOG_SCREENSHOTS names, else to the test's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route

from dashboards.viewer.library import Library
from schema.question_files import names, question
from tests.database import Database, prepared
from tests.integration.dashboards.viewer.browser_page import BrowserPage, open_page, running_browser
from tests.integration.dashboards.viewer.sample_plant import CHANNEL, UNIT, fill
from tests.integration.dashboards.viewer.serving import reading, served
from tests.waiting import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="module")  # one browser, one viewer
_SHOWN = {
    "plantlog-health": {},
    "plantlog-plant": {},
    "plantlog-unit": {"unit": UNIT},
    "plantlog-channel": {"unit": UNIT, "channel": CHANNEL, "compare": "600"},
    "plantlog-forensics": {"unit": UNIT},
    "plantlog-storage": {},
}
# Of each canvas: how many of its pixels are not those of its most frequent colour.
_PAINTED = """
[...document.querySelectorAll('canvas')].map((canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const pixels = new Uint32Array(data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  return pixels.length - Math.max(...counts.values());
})
"""


@pytest.fixture(scope="module")
def filled(server: str, template: str) -> Iterator[Database]:
    """One of this moment: the page asks for the last 45 minutes, and other tests may have taken as long."""
    now = datetime.now(UTC).replace(microsecond=0)
    with prepared(server, template, "filled_now", lambda database: fill(database, now)) as database:
        yield database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def browser(chromium: Browser) -> AsyncIterator[Browser]:
    """Each test has pages of its own; their cookies and storage, too."""
    yield chromium
    for context in chromium.contexts:
        await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(filled: Database, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """One for all tests."""
    async with reading(filled.reader_dsn, tmp_path_factory.mktemp("viewer")) as reader, served(reader) as address:
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("uid", [dashboard.uid for dashboard in Library()])
async def test_a_dashboard_shows_its_data(browser: Browser, page: str, uid: str, tmp_path: Path) -> None:
    look = await open_page(browser, page)
    await look.open(uid, **_SHOWN[uid])
    await look.screenshot(uid, tmp_path)
    assert {title: state for title, state in (await look.states()).items() if state != "shown"} == {}
    assert all(count > 100 for count in await look.page.evaluate(_PAINTED))
    assert look.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1400, "dark")])
async def test_dashboard_fits_a_phone_and_dark_mode(
    browser: Browser, page: str, width: int, scheme: str, tmp_path: Path
) -> None:
    look = await open_page(browser, page, width, scheme)
    for uid in ("plantlog-plant", "plantlog-channel"):
        await look.open(uid, **_SHOWN[uid])
        await look.screenshot(f"{uid}-{scheme}-{width}", tmp_path)
        assert await look.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        ground = await look.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(18, 24, 28)") == (scheme == "dark")
    assert look.wrong == []


@pytest.mark.slow
async def test_what_finds_no_network_is_asked_again(browser: Browser, page: str) -> None:
    look = await open_page(browser, page)
    bodies: set[str | None] = set()

    async def drop_first(route: Route) -> None:
        body = route.request.post_data
        await (route.continue_() if body in bodies else route.abort("internetdisconnected"))
        bodies.add(body)

    await look.page.route("**/api/query", drop_first)
    await look.open("plantlog-unit", unit=UNIT)
    assert bodies
    assert set((await look.states()).values()) == {"shown"}
    await look.page.route("**/api/query", lambda route: route.abort("connectionrefused"))
    await look.open("plantlog-unit", unit=UNIT)
    assert "The viewer does not answer: is it running, and is there a network?" in (await look.states()).values()


@pytest.mark.slow
async def test_drilling_down_keeps_the_time(browser: Browser, page: str) -> None:
    look = await open_page(browser, page)
    await look.open("plantlog-plant")
    await look.page.get_by_role("link", name=UNIT, exact=True).click()
    await look.opened("plantlog-unit")
    await look.page.get_by_role("link", name="pressure", exact=True).first.click()
    await look.opened("plantlog-channel")
    assert "from=now-45m&to=now" in look.page.url
    assert await look.page.locator("#variables").inner_text() == (
        f"Unit\n{UNIT}\nChannel\npressure\nCompare with\nan hour earlier"
    )
    assert (await look.states())["Trend"] == "shown"
    await look.page.go_back()
    await look.opened("plantlog-unit")
    assert look.wrong == []


_DRAWN = ("Stuck sensors", "Changes of set points, modes and states")

# Pixels of the trend that are green, as a mark is.
_GREEN = """
[...document.querySelectorAll('[data-panel="5"] canvas')].reduce((n, canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.length; at += 4) n += data[at + 1] > data[at] + 40 && data[at + 1] > data[at + 2] + 20;
  return n;
}, 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1400])
async def test_row_of_an_answer_opens_its_channel_with_its_time_marked(
    browser: Browser, page: str, width: int, tmp_path: Path
) -> None:
    look = await open_page(browser, page, width)
    await look.open("plantlog-forensics", unit=UNIT)
    await look.page.get_by_title("Open the channel").first.click()
    await look.opened("plantlog-channel")
    assert (await look.states())["Trend"] == "shown"
    _, _, mark = look.page.url.partition("&mark=")
    begin, _, end = mark.partition("&")[0].partition("-")
    shown = dict(part.split("=") for part in look.page.url.partition("?")[2].split("&"))
    assert int(shown["from"]) < int(begin) <= int(end) < int(shown["to"])
    marked = await look.page.evaluate(_GREEN)
    await look.screenshot(f"row-{width}", tmp_path)
    assert await look.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    path = look.page.url.removeprefix(look.where)
    await look.go(path.replace(f"&mark={begin}-{end}", ""))
    await look.opened("plantlog-channel")
    assert await look.page.evaluate(_GREEN) < marked
    assert look.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1400])
async def test_answer_is_drawn_above_its_rows(browser: Browser, page: str, width: int, tmp_path: Path) -> None:
    look = await open_page(browser, page, width)
    await look.open("plantlog-forensics", unit=UNIT)
    await look.screenshot(f"answers-{width}", tmp_path)
    stuck, changes = (look.page.locator(f"section.panel:has(h2:text-is('{title}'))") for title in _DRAWN)
    assert (await stuck.locator("figcaption").first.inner_text()).startswith(f"{UNIT}/oxygen [%] times limit ")
    chart, rows = [await stuck.locator(part).bounding_box() for part in (".charts", ".rows")]
    assert chart is not None
    assert rows is not None
    assert chart["y"] + chart["height"] <= rows["y"] + 1
    assert min(chart["height"], rows["height"]) > 60
    tips = await _tips(look, _DRAWN[0])
    assert "The answer: " in tips
    assert "No samples: disconnected" in tips
    assert "What it is compared with" in tips
    assert "judged" in await stuck.locator(".notice").inner_text()
    assert f"not drawn: {UNIT}/mode (text)" in await changes.locator(".charts").inner_text()
    assert await look.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await stuck.locator("figcaption a").first.click()
    await look.opened("plantlog-channel")
    assert "mark=" in look.page.url
    assert (await look.states())["Trend"] == "shown"
    assert look.wrong == []


# Pixels of a panel that are violet, as the curve of an earlier run is.
_VIOLET = """
(section) => [...section.querySelectorAll('canvas')].reduce((n, canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.length; at += 4) n += data[at] > data[at + 1] + 25 && data[at + 2] > data[at] + 30;
  return n;
}, 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1400])
async def test_any_question_is_chosen_and_drawn(browser: Browser, page: str, width: int, tmp_path: Path) -> None:
    look = await open_page(browser, page, width)
    await look.open("plantlog-forensics", "now-30m", unit=UNIT)
    panel = look.page.locator("section[data-panel='15']")
    assert await panel.locator("h2").inner_text() == f"departure: {question('departure').purpose}"
    asked: list[str] = []
    look.page.on("request", lambda request: asked.append(request.url))
    await _choose(look, "compare")
    assert len([url for url in asked if url.endswith("/api/query")]) == 1, "the others have no such variable"
    await look.screenshot(f"compare-{width}", tmp_path)
    assert await panel.locator("h2").inner_text() == f"compare: {question('compare').purpose}"
    notes = await panel.locator(".notice").inner_text()
    assert "reference: 30 min before" in notes
    assert "judged" in notes
    assert "violet: the run from " in await panel.locator(".charts").inner_text()
    assert await panel.evaluate(_VIOLET) > 100
    assert "earlier mean" in await _tips(look, f"compare: {question('compare').purpose}")
    assert {"from_time", "other_value"} < set(await panel.locator("th").all_text_contents())
    assert await look.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await _choose(look, "change_points")
    await look.screenshot(f"change-points-{width}", tmp_path)
    assert await panel.evaluate(_VIOLET) < 100
    assert await look.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await panel.get_by_role("link", name=f"{UNIT}/oxygen", exact=True).last.click()
    await look.opened("plantlog-channel")
    assert "mark=" in look.page.url
    assert (await look.states())["Trend"] == "shown"
    assert look.wrong == []


async def _choose(look: BrowserPage, name: str) -> None:
    """Choose a question, of all that there are."""
    await look.page.locator("#variables .chosen").last.click()
    options = look.page.locator("#variables").get_by_role("option")
    assert await options.all_inner_texts() == [f"{known}: {question(known).purpose}" for known in names()]
    await options.nth(names().index(name)).click()
    await look.page.locator(f"h2:text-is('{name}: {question(name).purpose}')").wait_for()
    await look.wait_until_loaded()


_HIDDEN = "(note) => note.scrollHeight - note.clientHeight"


@pytest.mark.slow
async def test_panel_says_that_nothing_could_be_judged(browser: Browser, page: str, tmp_path: Path) -> None:
    """Rather than that nothing was found; and the notes, which say why, are whole."""
    look = await open_page(browser, page)
    await look.open("plantlog-forensics", "now-30d", "now-29d", unit=UNIT)
    await look.screenshot("nothing-judged", tmp_path)
    for title in ("Timeline", "Changed behaviour", "Stuck sensors", "Replayed signals"):
        panel = look.page.locator(f"section.panel:has(h2:text-is('{title}'))")
        assert await panel.locator(".body").inner_text() == "Nothing could be judged"
        note = panel.locator(".notice")
        assert (await note.inner_text()).startswith("no rows: nothing could be judged\n")
        assert await note.evaluate(_HIDDEN) <= 0
    assert look.wrong == []


_BEFORE = """
(section) => {
  const { content, visibility } = getComputedStyle(section.querySelector('.body'), '::before');
  return content.includes('Loading') && visibility === 'visible';
}
"""


@pytest.mark.slow
async def test_panel_says_that_it_loads_and_keeps_its_content_until_it_has_another(browser: Browser, page: str) -> None:
    look = await open_page(browser, page)
    answered, fails = asyncio.Event(), False

    async def held(route: Route) -> None:
        await answered.wait()
        await (route.fulfill(status=503, json={"error": "the database is away"}) if fails else route.continue_())

    await look.page.route("**/api/query", held)
    await look.go(f"/d/plantlog-unit?var-unit={UNIT}&refresh=off")
    section = look.page.locator("section.panel:has(h2:text-is('bar'))")
    await look.page.wait_for_function(_BEFORE, arg=await section.element_handle())
    answered.set()
    await look.opened("plantlog-unit")
    chart = await section.locator(".body").inner_html()
    assert "canvas" in chart
    answered.clear()
    fails = True
    await look.page.locator("#zone").click()
    await look.page.locator("section.panel.asking:has(h2:text-is('bar'))").wait_for()
    assert await section.locator(".body").inner_html() == chart
    answered.set()
    await look.wait_until_loaded()
    assert (await look.states())["bar"] == "the database is away"
    await look.page.locator("#theme").click()  # what is drawn is drawn anew, as when marks arrive
    assert (await look.states())["bar"] == "the database is away"


@pytest.mark.slow
async def test_menu_keeps_the_unit(browser: Browser, page: str) -> None:
    look = await open_page(browser, page)
    await look.open("plantlog-channel", unit="meters/boiler1")
    for name, uid in (("Forensics", "plantlog-forensics"), ("Unit", "plantlog-unit"), ("Channel", "plantlog-channel")):
        await look.page.locator("#levels").get_by_role("link", name=name, exact=True).click()
        await look.opened(uid)
        assert await look.page.get_by_role("button", name="meters/boiler1").is_visible()
    assert look.wrong == []


_NOT_THERE = "The list {} has no “{}”."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uid", "link", "shown", "problem"),
    [
        ("channel", {"channel": "meters/boiler1/fuel"}, ["meters/boiler1", "fuel"], ""),
        ("channel", {"unit": UNIT, "channel": "meters/boiler1/fuel"}, ["meters/boiler1", "fuel"], ""),
        ("channel", {"unit": "meters/boiler1"}, ["meters/boiler1", "fuel"], ""),
        ("unit", {"channel": "meters/boiler1/fuel"}, ["meters/boiler1"], ""),
        ("unit", {"unit": "meters/boiler1", "channel": CHANNEL}, ["meters/boiler1"], ""),
        ("plant", {"unit": UNIT}, ["All"], ""),
        ("plant", {"area": "meters"}, ["meters"], ""),
        ("channel", {"channel": f"{UNIT}/none"}, [UNIT, f"{UNIT}/none"], _NOT_THERE.format("Channel", f"{UNIT}/none")),
        ("unit", {"unit": "none"}, ["none"], _NOT_THERE.format("Unit", "none")),
        ("forensics", {"unit": "none"}, ["none"], _NOT_THERE.format("Unit", "none")),
        ("plant", {"area": "none"}, ["none"], _NOT_THERE.format("Area", "none")),
        ("health", {"installation": "none"}, ["none"], _NOT_THERE.format("Installation", "none")),
        ("storage", {"installation": "none"}, ["none"], _NOT_THERE.format("Installation", "none")),
        ("channel", {"compare": "7"}, [UNIT, "pressure", "an hour earlier"], _NOT_THERE.format("Compare with", "7")),
        ("plant", {"source": "plc"}, ["All"], "No dashboard has a variable “source”."),
    ],
)
async def test_link_shows_what_it_names_or_says_that_there_is_none(
    browser: Browser, page: str, uid: str, link: dict[str, str], shown: list[str], problem: str
) -> None:
    look = await open_page(browser, page)
    await look.open(f"plantlog-{uid}", **link)
    assert (await look.page.locator("#variables .chosen").all_inner_texts())[: len(shown)] == shown
    assert await look.page.locator("#problem").inner_text() == problem
    assert not [state for state in (await look.states()).values() if state not in ("shown", "empty")]
    assert look.wrong == []


_TIMES = "now, now-6h, now-1d/d, 2026-03-09T10:00:00Z and the like, or milliseconds since 1970."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("since", "until", "problem"),
    [
        ("abc", "now", f"from=abc; legal: {_TIMES}"),
        ("now-1h", "tomorrow 5", f"to=tomorrow 5; legal: {_TIMES}"),
        ("99999999999999999", "now", f"from=99999999999999999; legal: {_TIMES}"),
        ("now", "now-1h", "from=now and to=now-1h; legal: from is before to."),
    ],
)
async def test_wrong_times_are_told_and_the_default_range_is_shown(
    browser: Browser, page: str, since: str, until: str, problem: str
) -> None:
    look = await open_page(browser, page)
    await look.open("plantlog-unit", since, until, unit="none")
    said = await look.page.locator("#problem").inner_text()
    assert said == f"Found {problem} {_NOT_THERE.format('Unit', 'none')}"
    usual = Library().dashboard("plantlog-unit").content["time"]
    assert f"from={usual['from']}&to={usual['to']}" in look.page.url
    await look.page.locator("#range").click()
    await look.page.get_by_text("Last 24 hours", exact=True).click()
    assert await look.page.locator("#problem").inner_text() == _NOT_THERE.format("Unit", "none")
    assert look.wrong == []


@pytest.mark.slow
async def test_problem_of_a_link_ends_with_a_choice(browser: Browser, page: str) -> None:
    look = await open_page(browser, page)
    await look.open("plantlog-channel", channel=f"{UNIT}/none")
    assert (await look.states())["Trend"] == "empty"
    await look.page.locator("#variables .chosen").nth(1).click()
    await look.page.get_by_role("option", name="steam_flow").click()
    await look.page.locator("html[data-changed=channel]").wait_for(state="attached")
    await look.wait_until_loaded()
    assert not await look.page.locator("#problem").is_visible()
    assert (await look.states())["Trend"] == "shown"
    assert f"var-channel={UNIT}/steam_flow".replace("/", "%2F") in look.page.url


@pytest.mark.slow
async def test_dragging_zooms_the_time_range(browser: Browser, page: str) -> None:
    look = await open_page(browser, page)
    await look.open("plantlog-channel", **_SHOWN["plantlog-channel"])
    box = await look.page.locator("[data-panel] .u-over").first.bounding_box()
    assert box is not None
    await look.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    await look.page.mouse.down()
    await look.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=5)
    await look.page.mouse.up()
    await look.page.wait_for_url(lambda url: "from=now-45m" not in url)
    await look.wait_until_loaded()
    since, until = await look.page.evaluate(
        "['from', 'to'].map((n) => Number(new URLSearchParams(location.search).get(n)))"
    )
    assert 8 * 60_000 < until - since < 10 * 60_000
    assert (await look.states())["Trend"] == "shown"
    assert look.wrong == []


@pytest.mark.slow
async def test_selecting_another_channel_queries_it(browser: Browser, page: str) -> None:
    look = await open_page(browser, page)
    await look.open("plantlog-channel", **_SHOWN["plantlog-channel"])
    before = await look.page.locator(".stat .value").first.inner_text()
    await look.page.get_by_role("button", name="pressure").click()
    await look.page.get_by_role("searchbox").fill("steam")
    await look.page.get_by_role("option", name="steam_flow").click()
    await look.page.locator("html[data-changed=channel]").wait_for(state="attached")
    await look.wait_until_loaded()
    after = await look.page.locator(".stat .value").first.inner_text()
    assert before.endswith("bar")
    assert after.endswith("t/h")
    assert "steam_flow" in look.page.url
    assert look.wrong == []


@pytest.mark.slow
async def test_another_unit_is_shown_with_all_its_charts(browser: Browser, page: str) -> None:
    look = await open_page(browser, page)
    await look.open("plantlog-unit", unit="meters/boiler1")
    await look.page.get_by_role("button", name="meters/boiler1").click()
    await look.page.get_by_role("option", name=UNIT).click()
    await look.page.locator("html[data-changed=unit]").wait_for(state="attached")
    await look.wait_until_loaded()
    assert {"bar", "%", "t/h"} < (await look.states()).keys()
    assert look.wrong == []


@pytest.mark.slow
async def test_relative_time_can_be_chosen(browser: Browser, page: str) -> None:
    look = await open_page(browser, page)
    await look.open("plantlog-health")
    await look.page.locator("#range").click()
    await look.page.get_by_text("Last 6 hours").click()
    await look.wait_until_loaded()
    assert "from=now-6h&to=now" in look.page.url
    assert set((await look.states()).values()) == {"shown"}
    assert look.wrong == []


async def _tips(look: BrowserPage, title: str) -> str:
    """All that the tip says where the pointer passes over a chart."""
    over = look.page.locator(f"section.panel:has(h2:text-is('{title}')) .u-over").first
    await over.scroll_into_view_if_needed()
    box = await over.bounding_box()
    assert box is not None
    output = ""
    for part in range(2, 100, 2):
        await look.page.mouse.move(box["x"] + box["width"] * part / 100, box["y"] + 40)
        output += await look.page.locator("#tip").inner_text()
    return output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uid", "title", "reason"),
    [
        ("plantlog-channel", "Trend", "disconnected – no route"),
        ("plantlog-unit", "bar", "plc: disconnected – no route"),
        ("plantlog-unit", "%", "oxygen: poll_failed – no answer"),
    ],
)
async def test_gap_tooltip_shows_the_reason(browser: Browser, page: str, uid: str, title: str, reason: str) -> None:
    look = await open_page(browser, page)
    await look.open(uid, since="now-30m", **_SHOWN[uid])
    async with asyncio.timeout(PATIENCE):
        while reason not in await _tips(look, title):
            pass
    if uid == "plantlog-unit":
        assert "oxygen: poll_failed" not in await _tips(look, "bar"), "a curve of another chart"


@pytest.mark.slow
async def test_all_times_of_a_page_are_in_the_zone_that_it_names(browser: Browser, page: str) -> None:
    look = await open_page(browser, page, zone="Asia/Tokyo")
    await look.open("plantlog-health")
    cells = look.page.locator("section.panel:has(h2:text-is('Events')) td").filter(has_text="2001-02-0")
    assert await look.page.locator("#zone").inner_text() == "Asia/Tokyo"
    assert "since 2001-02-04 00:00:00" in await cells.first.inner_text()
    await look.page.locator("#zone").click()
    await look.wait_until_loaded()
    assert await look.page.locator("#zone").inner_text() == "UTC"
    assert "since 2001-02-03 15:00:00" in await cells.first.inner_text()
    assert look.wrong == []
