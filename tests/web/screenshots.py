"""Makes the pictures in docs/images anew: `python -m tests.web.screenshots [FOLDER]`.

Each view is taken in light and in dark. A project with the repository's own documentation in it, some history, many
namespaces and a job under way is served for real, and looked at in Chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final, Literal
from unittest.mock import patch

from playwright.sync_api import Browser, Page

import instep
from instep.ledger.ledger import Ledger
from instep.system import SystemClock
from tests.web import scene
from tests.web.browsing import running_browser
from tests.web.serving import Site

Scheme = Literal["light", "dark"]

REPOSITORY: Final = Path(__file__).resolve().parents[2]
IMAGES: Final = REPOSITORY / "docs" / "images"
HOUR: Final = 3600
LAPTOP, TALL, PHONE = (1280, 800), (1280, 1270), (390, 844)
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")


def _nothing(_page: Page) -> None:
    pass


def _pick_a_slice(page: Page) -> None:
    page.get_by_role("slider").click(position={"x": 204, "y": 60})
    page.get_by_text("by worker").wait_for()
    page.mouse.move(0, 0)


@dataclass(frozen=True)
class Picture:
    name: str
    way: str
    size: tuple[int, int]
    prepare: Callable[[Page], None] = _nothing


PICTURES: Final = (
    Picture("page-job", f"/jobs/{scene.JOB}", LAPTOP, _pick_a_slice),
    Picture("page-status", "/status", LAPTOP),
    Picture("page-partition", "/partitions/Guide%40global", TALL),
    Picture("page-failures", "/failures", LAPTOP),
    Picture("page-phone", "/jobs", PHONE),
)


@dataclass
class Past(SystemClock):
    """The clock as it was so many seconds ago."""

    ago: float = 0

    def now(self) -> int:
        return super().now() - round(self.ago * 1000)


def _earlier(seconds: float) -> AbstractContextManager[object]:
    """A fixed time for all that is done within."""
    return patch("instep.container.SystemClock", lambda: Past(seconds))


def main(images: Path) -> None:
    images.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "handbook"
        folder.mkdir()
        _make(folder)
        clock = Past(ago=140)
        with scene.opened(folder, clock) as ledger, Site(folder).served() as site, running_browser() as browser:
            _advance(ledger, clock)
            for each, scheme in product(PICTURES, SCHEMES):
                _take(browser, site, each, scheme, images)


def _make(folder: Path) -> None:
    """With builds that were left, and one that another was made from."""
    guides = folder / "guides"
    shutil.copytree(REPOSITORY / "docs", guides, ignore=shutil.ignore_patterns("images"))
    (guides / scene.BROKEN).write_bytes(b"%PDF-1.4 nothing")
    with _earlier(52 * HOUR):
        scene.make(folder, guides, namespaces=48, tables=scene.TABLES)
    project = instep.load(folder)
    with _earlier(33 * HOUR):
        project.taint("Guide", why="half of the titles are missing", by="ann")
    with _earlier(31 * HOUR):
        project.run(["Guide", "Answer"])
    with _earlier(9 * HOUR):
        project.rebuild("Guide", by="ann")
        project.run(["Guide"])
    (guides / "addition.md").write_text("# Addition\n\nOne more page.\n", encoding="utf-8")
    with _earlier(0.5 * HOUR):
        project.run(["Guide", "Answer"])


def _advance(ledger: Ledger, clock: Past) -> None:
    """A job as it is after a while: the greater part is done, a few did not come through, two workers are at it."""
    job = scene.RunningJob(ledger, slices=1_800)
    reasons = {4: ("no text in it", 1), 6: ("the PDF needs a password", 2), 7: ("the file ends too early", 1)}
    for number in range(11):
        claims = job.claim(90)
        clock.ago -= 12
        reason, failed = reasons.get(number, ("", 0))
        job.complete(claims, failed=failed, reason=reason)
    first, second = job.claim(70), job.claim(60, worker=scene.WORKERS[1])
    clock.ago = 3
    job.complete(first[::3])
    job.complete(second[::2], worker=scene.WORKERS[1])
    for worker, claims in zip(scene.WORKERS, (first, second), strict=True):
        ledger.workers.heartbeat(worker, [each.slice_id for each in claims])


def _take(browser: Browser, site: Site, picture: Picture, scheme: Scheme, images: Path) -> None:
    width, height = picture.size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        device_scale_factor=2 if picture.size == PHONE else 1,
    )
    page = context.new_page()
    page.goto(f"{site.address}/#{picture.way}")
    page.get_by_text("Reading…").first.wait_for(state="detached")
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_load_state("networkidle")
    picture.prepare(page)
    page.screenshot(path=images / f"{picture.name}-{scheme}.png")
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
