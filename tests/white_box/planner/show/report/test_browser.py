"""The page as a browser shows it; `.ci/run` installs Debian's Chromium, and without it these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from playwright.sync_api import Browser, Page, sync_playwright

import truenorth as tn
from tests.instances import chain, cluster, instance, task
from tests.planner.show.report import hostile
from tests.white_box.planner.show.report.test_page import wide_folder
from truenorth.models import Job, Placement, Residency, Timeline
from truenorth.planner.answers.shown import Shown
from truenorth.planner.show import timelines
from truenorth.planner.show.canvas import COLOURS, PLAIN, contrast

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
LABELS = 112  # pixels of a chart's labels


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def opened(browser: Browser, path: Path, **options: object) -> tuple[Page, list[str]]:
    """Return a page without a network, and everything it complains of or asks for."""
    page = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True, **options).new_page()  # type: ignore[arg-type]
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: trouble.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(path.as_uri())
    return page, [entry for entry in trouble if not entry.startswith("data:")]


def written(folder: Path, target: Path) -> Path:
    tn.report([folder]).save(target)
    return target


def test_a_chart_can_be_read_zoomed_and_moved(browser: Browser, folder: Path, tmp_path: Path) -> None:
    page, trouble = opened(browser, written(folder, tmp_path / "report.html"))
    canvas = page.locator("canvas").first
    # The plan of tests/planner ends at 9 us, whatever it does; the chart is as wide as that.
    assert page.evaluate("document.querySelector('.gantt').gantt.view") == {"from": 0, "to": 9}
    width = page.evaluate("document.querySelector('.gantt').gantt.width") - LABELS - 8
    canvas.hover(position={"x": LABELS + width * 5 / 9, "y": 20})  # both jobs run a in [4, 7), each on a GPU
    first = page.locator(".tooltip").first.inner_text().splitlines()
    assert first[0] in ("a, job 0 (w)", "a, job 1 (w)")
    assert first[1:3] == ["s0/g0: 4 µs to 7 µs, runs 3 µs", "needs m"]
    canvas.hover(position={"x": LABELS + width * 2 / 9, "y": 43})
    assert page.locator(".tooltip").first.inner_text().splitlines() == [
        "load of m (4 B)", "s0/g0: loaded 0 µs to 4 µs", "never evicted"
    ]  # fmt: skip
    canvas.hover(position={"x": LABELS + width * 8 / 9, "y": 82})  # memory, near its floor
    assert page.locator(".tooltip").first.inner_text().splitlines()[0] == "m (4 B)"
    canvas.hover(position={"x": LABELS + width * 8 / 9, "y": 60})  # 10 bytes of memory hold 4: nothing is up there
    assert page.locator(".tooltip").first.is_hidden()
    page.locator("button[data-act=in]").first.click()
    assert page.evaluate("document.querySelector('.gantt').gantt.view") == {"from": 2.25, "to": 6.75}
    assert trouble == []


def test_ten_thousand_tasks_zoom_about_the_pointer(browser: Browser, folder: Path, tmp_path: Path) -> None:
    page, trouble = opened(browser, written(wide_folder(tmp_path / "wide", folder), tmp_path / "wide.html"))
    gantt = "document.querySelector('.gantt').gantt"
    end = page.evaluate(f"{gantt}.end")
    assert end == 100_000 * 9_999 + 400_004
    assert page.evaluate(f"{gantt}.rows.map((row) => row.runs.length)") == [2000] * 5
    under = page.evaluate(f"{gantt}.at(600)")
    page.evaluate(f"{gantt}.zoom(1e-3, 600)")
    assert page.evaluate(f"{gantt}.at(600)") == pytest.approx(under)
    view = page.evaluate(f"{gantt}.view")
    assert view["to"] - view["from"] == pytest.approx(end / 1000)
    page.locator("canvas").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{gantt}.view.from") == pytest.approx(view["from"] + page.evaluate(f"80 / {gantt}.scale"))
    page.keyboard.press("0")
    assert page.evaluate(f"{gantt}.view") == {"from": 0, "to": end}
    assert trouble == []


def settled(page: Page, expression: str, value: object) -> bool:
    """Say whether an expression gets to a value within ten seconds; the page's policy forbids to wait inside of it."""
    for _ in range(100):
        if page.evaluate(expression) == value:
            return True
        page.wait_for_timeout(100)
    return False


def test_colours_follow_the_reader_and_the_printer(browser: Browser, folder: Path, tmp_path: Path) -> None:
    target = written(folder, tmp_path / "report.html")
    corner = "[...document.querySelector('canvas').getContext('2d').getImageData(1100, 3, 1, 1).data].slice(0, 3)"
    page, _ = opened(browser, target, color_scheme="light")
    assert settled(page, corner, [255, 255, 255])
    page.emulate_media(color_scheme="dark")
    assert settled(page, corner, [23, 24, 27])  # --paper of page.css
    page.emulate_media(media="print", color_scheme="dark")
    assert settled(page, corner, [255, 255, 255])
    assert page.locator(".controls button").first.is_hidden()


def test_hostile_names_run_nothing(browser: Browser, hostile_folder: Path, tmp_path: Path) -> None:
    page, trouble = opened(browser, written(hostile_folder, tmp_path / "hostile.html"))
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.title().startswith(hostile.NAMES["by-hand"])
    assert page.locator(".gantt .legend").first.inner_text().splitlines()[0] == hostile.NAMES["m"]
    page.locator("canvas").first.hover(position={"x": 700, "y": 20})
    assert page.locator(".tooltip").first.inner_text().startswith(f"{hostile.NAMES['a']}, job ")
    assert trouble == []


def lone_gpus(folder: Path, gpus: int, busy: int) -> Path:
    """Write a folder with a plan of which so many GPUs run a task each, and hold a model of 24 MB."""
    window = instance(
        [Job(chain(task("a", 3, ["m"])), 0)] * busy, {"m": 24_000_000}, on=cluster(gpus, memory_bytes=10**8)
    )
    stays = [Residency(0, gpu, 0, 0, initial=True) for gpu in range(busy)]
    made = Timeline.build(busy, [Placement(job, job, 0, 3) for job in range(busy)], stays)
    timelines.write(folder, [Shown("plan", True, window, made)])
    return folder


def test_a_chart_says_how_many_gpus_there_are_and_which_are_seen(
    browser: Browser, folder: Path, tmp_path: Path
) -> None:
    wide = shutil.copytree(folder, tmp_path / "wide")
    page, trouble = opened(browser, written(lone_gpus(wide, 12, 10), tmp_path / "report.html"))
    seen = "document.querySelector('.seen').textContent"
    assert settled(page, seen, "12 GPUs; 2 of them idle; seen here: s0/g0 to s7/g0, scroll for the others.")
    # 10 rows of 92 and 2 of 20 pixels, of which 736 are seen: 224 are above, two rows and not half of the third.
    page.evaluate("document.querySelector('.scroller').scrollTop = 1e6")
    assert settled(page, seen, "12 GPUs; 2 of them idle; seen here: s2/g0 to s11/g0, scroll for the others.")
    gantt = "document.querySelector('.gantt').gantt"
    heights = page.evaluate(f"{gantt}.rows.map((row) => row.height)")
    assert heights[:10] == [heights[0]] * 10
    assert heights[10:] == [20, 20]  # idle
    page.evaluate("document.querySelector('.scroller').scrollTop = 0")
    page.locator("canvas").first.hover(position={"x": LABELS + 300, "y": 82})  # memory, near its floor
    assert page.locator(".tooltip").first.inner_text().splitlines()[0] == "m (24 MB)"
    assert trouble == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_on_bars_can_be_read(
    browser: Browser, folder: Path, tmp_path: Path, scheme: Literal["light", "dark"]
) -> None:
    page, _ = opened(browser, written(folder, tmp_path / "report.html"), color_scheme=scheme)
    gantt = "document.querySelector('.gantt').gantt"
    paper = page.evaluate(f"{gantt}.paper").strip()
    for colour in (*COLOURS, PLAIN):
        for alpha in (1, 0.85, 0.4):
            ink = page.evaluate(f"{gantt}.inkOn('{colour}', {alpha})")
            over, under = np.array(to_rgb(colour)), np.array(to_rgb(paper))
            assert contrast(ink, to_rgb(tuple(alpha * over + (1 - alpha) * under))) >= 4.5


def test_a_narrow_page_never_scrolls_sideways(browser: Browser, folder: Path, tmp_path: Path) -> None:
    page, _ = opened(browser, written(folder, tmp_path / "report.html"))
    page.set_viewport_size({"width": 400, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert page.locator("svg").first.evaluate("(svg) => getComputedStyle(svg.querySelector('text')).fontSize") == "17px"


def test_figures_follow_the_reader(browser: Browser, folder: Path, tmp_path: Path) -> None:
    page, _ = opened(browser, written(folder, tmp_path / "report.html"), color_scheme="dark")
    fill = "getComputedStyle(document.querySelector('svg text')).fill"
    assert page.evaluate(fill) == "rgb(162, 162, 170)"  # --soft of page.css, dark
    page.emulate_media(media="print")
    assert page.evaluate(fill) == "rgb(92, 92, 98)"


def test_on_a_telephone_no_column_is_out_of_sight_and_the_chart_comes_last(
    browser: Browser, folder: Path, tmp_path: Path
) -> None:
    target = written(folder, tmp_path / "report.html")
    page, _ = opened(browser, target)
    headings = page.locator("thead").first
    assert headings.is_visible()
    page.set_viewport_size({"width": 400, "height": 900})
    assert headings.is_hidden()
    rights = "[...document.querySelectorAll('td, svg')].map((cell) => cell.getBoundingClientRect().right)"
    assert max(page.evaluate(rights)) <= 400
    named = "getComputedStyle(document.querySelector('td.word + td'), '::before').content"
    assert page.evaluate(named) == '"information used "'
    first = page.locator(".drawn").first.bounding_box()
    assert first is not None
    assert first["y"] < 2 * 900  # within two screens
    tops = [page.locator(kind).last.bounding_box() for kind in (".drawn", "table", ".gantt", "dl")]
    assert [box["y"] for box in tops if box] == sorted(box["y"] for box in tops if box)
