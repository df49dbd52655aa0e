"""``python -m tests.documentation.screenshots COMPARISON SERVERS``: take the pictures of reports that docs/ shows.

COMPARISON is a folder of ``truenorth compare -o``, SERVERS one of ``truenorth servers -o``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

import truenorth as tn
from tests.documentation.pages import ROOT

PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1000, 620


def take(page: Page, report: Path, name: str, above: str) -> None:
    """Save what stands from the element `above` on, as high as a picture may be."""
    page.goto(report.as_uri())
    page.locator(above).first.evaluate("element => window.scrollTo(0, element.getBoundingClientRect().top - 20)")
    page.wait_for_timeout(500)  # the chart draws itself when it is seen
    page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    compared, sized = (Path(folder) for folder in sys.argv[1:])
    with TemporaryDirectory() as folder, sync_playwright() as browsers:
        reports = [Path(folder, "compared.html"), Path(folder, "sized.html")]
        for report, results in zip(reports, (compared, sized), strict=True):
            tn.report([results]).save(report)
        browser = browsers.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        take(page, reports[0], "report_comparison", "h1")
        take(page, reports[0], "report_timeline", "figure.gantt")
        take(page, reports[1], "report_fleet", "h1")
        browser.close()
