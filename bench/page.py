"""How long until the page of `instep serve` is seen (goal: first paint under 1 s): `python -m bench.page`.

A project with indexes and a running job is served as a user has it, and visited with a fresh browser profile each time:
nothing is kept from the visit before. First paint is what Chromium's own PerformanceObserver says; content is when the
first job is in the page. Then 50,000 slices are drawn on the page's canvas.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser
from tests.web import scene
from tests.web.browsing import chromium, running_browser
from tests.web.serving import Site

from bench import report

VISITS, SLICES, GOAL_SECONDS = 9, 50_000, 1.0
_SEEN = {"first-paint", "first-contentful-paint", "content"}

#: From before the page's own scripts on.
_OBSERVE = """
window.seen = {};
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.seen[each.name] = each.startTime;
}).observe({ type: "paint", buffered: true });
new MutationObserver((_, observer) => {
  if (!document.querySelector("article")) return;
  window.seen.content = performance.now();
  observer.disconnect();
}).observe(document, { childList: true, subtree: true });
"""

_DRAW = """
async (slices) => {
  const { draw } = await import("/js/grid.js");
  const letters = { P: "PENDING", R: "PROCESSING", C: "COMPLETED", F: "FAILED" };
  const canvas = document.createElement("canvas");
  document.getElementById("main").append(canvas);
  const times = [];
  for (let round = 0; round < 9; round++) {
    const states = Array.from({ length: slices }, (_, each) => "CCCCCCRPPF"[(each * 7 + round) % 10]).join("");
    const began = performance.now();
    draw(canvas, { states, letters, only: null, at: null });
    canvas.getContext("2d").getImageData(0, 0, 1, 1);
    times.push(performance.now() - began);
  }
  canvas.remove();
  return times;
}
"""


def visit(browser: Browser, address: str) -> dict[str, float]:
    """Milliseconds of one visit, by what was seen then."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.add_init_script(_OBSERVE)
    page.goto(f"{address}/#/jobs")
    page.wait_for_selector("article")
    found: dict[str, float] = {}
    # The observer is told of a paint some time after it.
    while not found.keys() >= _SEEN:
        found = page.evaluate("seen")
    context.close()
    return found


def draw(browser: Browser, address: str) -> list[float]:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{address}/#/wants")
    times: list[float] = page.evaluate(_DRAW, SLICES)
    page.close()
    return times


def _row(what: str, goal: float | None, milliseconds: Sequence[float]) -> list[Any]:
    seconds = [each / 1000 for each in milliseconds]
    median = statistics.median(seconds)
    verdict = "" if goal is None else "met" if median < goal else "MISSED"
    return [
        what,
        "" if goal is None else f"under {goal:g} s",
        f"{median:.2f} s",
        verdict,
        f"{min(seconds):.2f} to {max(seconds):.2f}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=VISITS)
    options = parser.parse_args(arguments)
    if chromium() is None:
        print("The page is not measured: no Chromium is installed.")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scene.make_small(folder)
        with scene.opened(folder) as ledger, Site(folder).served() as site, running_browser() as browser:
            scene.RunningJob(ledger, slices=100)
            visits = [visit(browser, site.address) for _ in range(options.visits)]
            drawn = draw(browser, site.address)
    rows = [
        _row("first paint", GOAL_SECONDS, [each["first-paint"] for each in visits]),
        _row("first paint with content of its own", GOAL_SECONDS, [each["first-contentful-paint"] for each in visits]),
        _row("jobs are in the page", None, [each["content"] for each in visits]),
        _row(f"{SLICES:,} slices drawn", None, drawn),
    ]
    report.show(f"{options.visits} visits with a fresh profile", ["what", "goal", "reached", "", "all"], rows)
    if any("MISSED" in row for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
