"""The page as people meet it, in a real browser on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, expect

import instep
from instep.domain.jobs import Phase
from instep.ledger.ledger import Ledger
from tests.web import scene
from tests.web.conftest import Watched
from tests.web.serving import TOKEN, Site

#: Tests come in any order: each has a job of its own, and ends it.
OTHER_JOB: Final = "2e1d8b3f-6d1b-4c53-9a37-5f2d8e7b4c10"


@pytest.fixture
def ledger(folder: Path) -> Iterator[Ledger]:
    with scene.opened(folder) as opened:
        yield opened


def test_jobs_are_shown_as_they_go_without_a_reload(watched: Watched, ledger: Ledger) -> None:
    page = watched.go("/jobs")
    expect(page.get_by_text("Nothing runs.")).to_be_visible()
    page.evaluate("window.loadedOnce = true")
    job = scene.RunningJob(ledger, slices=40, job_id=OTHER_JOB)
    card = page.get_by_role("article", name=f"Job {OTHER_JOB[:8]}")
    expect(card.get_by_text("running")).to_be_visible()
    job.complete(job.claim(10), failed=1)
    expect(card.get_by_text("25 %", exact=True)).to_be_visible()
    card.get_by_role("link", name="Letter").click()
    cells = page.get_by_role("slider", name="Slices of Letter")
    expect(cells).to_have_attribute("aria-valuetext", "slice 1 of 40, completed")
    job.complete(job.claim(20))
    held = job.claim(3)
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "75")
    expect(page.get_by_role("button", name="in work 3")).to_be_visible()
    # What a wave has read counts before the wave is committed.
    ledger.slices.tell(held[0], scene.WORKERS[0], 2 * scene.UNITS)
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "80")
    # The keys pick a slice, which is told in words.
    cells.focus()
    page.keyboard.press("End")
    expect(cells).to_have_attribute("aria-valuetext", "slice 40 of 40, waiting")
    expect(page.get_by_text("Letter, slice 39")).to_be_visible()
    job.complete([*held, *job.claim(7)])
    # What comes after the last wave is named, and nothing is done before it is.
    expect(page.get_by_text("bringing indexes up to date").first).to_be_visible()
    expect(page.get_by_role("progressbar")).not_to_have_attribute("aria-valuenow", "75")
    expect(page.get_by_role("progressbar")).to_have_class("progress work unknown")
    expect(page.get_by_text("100 %")).to_have_count(0)
    ledger.job_log.add(OTHER_JOB, Phase.CHECKS, Phase.CHECKS.words, ref="Letter@global", worker_id=scene.WORKERS[0])
    expect(page.get_by_text("checking what was built").first).to_be_visible()
    expect(cells).to_be_focused()
    job.end()
    page.get_by_role("link", name="Jobs").click()
    row = page.get_by_role("row", name=OTHER_JOB[:8])
    expect(row.get_by_text("with errors")).to_be_visible()
    assert page.evaluate("window.loadedOnce")


def test_search_finds_and_shows_where_a_hit_comes_from(watched: Watched) -> None:
    page = watched.go("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("leeks cream")
    page.keyboard.press("Enter")
    hit = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="Soup")).first
    # What documents hold is text, and never becomes part of the page.
    expect(hit.get_by_text("<b>never</b>")).to_be_visible()
    expect(hit.locator("mark", has_text="cream")).to_be_visible()
    # Vectors of hashed words know no meaning, and the page does not say that they do.
    mode = page.get_by_label("by", exact=True)
    expect(mode).to_have_value("text")
    assert mode.locator("option").all_inner_texts() == ["words and hashed words", "words", "hashed words"]
    mode.select_option("hybrid")
    expect(mode).to_have_value("hybrid")
    hit.get_by_text("Where it comes from").click()
    expect(hit.get_by_text("first build")).to_be_visible()


def test_a_filter_is_completed_and_facets_narrow_a_search(watched: Watched) -> None:
    page = watched.go("/jobs")
    page.get_by_role("link", name="Search").click()
    page.get_by_role("searchbox", name="Search the indexes").fill("dough cream water")
    page.keyboard.press("Enter")
    hits = page.get_by_role("main").get_by_role("listitem").get_by_role("heading", level=2)
    expect(hits.first).to_be_visible()
    page.get_by_role("combobox", name="in", exact=True).select_option("Guide")
    expect(hits.filter(has_text="Bread").first).to_be_visible()
    # Column, operator and value, by the keyboard alone.
    box = page.get_by_role("combobox", name="only where")
    box.focus()
    page.keyboard.type("sh")
    expect(page.get_by_role("option", name="shelf string")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(box).to_have_attribute("aria-activedescendant", "search-where-list-0")
    page.keyboard.press("Enter")
    expect(page.get_by_role("option", name="IS NULL")).to_be_visible()
    page.keyboard.type("= ")
    expect(page.get_by_role("option", name="t 1")).to_be_visible()
    page.keyboard.type("'s")
    expect(page.get_by_role("option", name="t 1")).to_have_count(0)
    expect(page.get_by_role("option", name="s 1")).to_be_visible()
    # Both keys within one frame: what is taken is what was chosen, not what was drawn before.
    box.evaluate(
        "box => ['ArrowDown', 'Enter'].forEach("
        "key => box.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true})))"
    )
    expect(box).to_have_value("shelf = 's' ")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(hits.filter(has_text="Bread")).to_have_count(0)
    expect(hits.filter(has_text="Soup").first).to_be_visible()
    expect(page.get_by_role("main").get_by_role("listitem").filter(has_text="Soup").first).to_contain_text("shelf s")
    # The facet of the value is pressed; let go, it takes its condition away.
    facet = page.get_by_role("region", name="Narrow by").get_by_role("button", name="s 1")
    expect(facet).to_have_attribute("aria-pressed", "true")
    facet.click()
    expect(hits.filter(has_text="Bread").first).to_be_visible()
    expect(box).to_have_value("")
    page.get_by_role("region", name="Narrow by").get_by_role("button", name="b 1").click()
    expect(box).to_have_value("shelf = 'b'")
    expect(hits.filter(has_text="Soup")).to_have_count(0)
    # What is wrong is said, and shown at its place.
    watched.expected.append("400")
    box.fill("shelf = 'b' AND shelv = 's'")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page.locator(".note.bad")).to_contain_text("did you mean shelf?")
    expect(page.get_by_role("main").locator("code > mark")).to_have_text("s")


def test_the_api_can_be_tried_on_a_page_of_its_own(watched: Watched) -> None:
    page = watched.page
    page.goto(f"{watched.site.address}/docs")
    page.get_by_role("button", name="GET /api/workers List Workers").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    expect(page.get_by_role("heading", name="Server response")).to_be_visible()
    expect(page.get_by_text('"items"').first).to_be_visible()


def test_arrow_keys_walk_the_matrix(watched: Watched) -> None:
    page = watched.go("/status")
    expect(page.get_by_role("heading", name="Entities")).to_be_visible()
    cells = page.get_by_role("grid").get_by_role("link")
    expect(cells).to_have_count(6)
    cells.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(cells.nth(3)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Issue@")


def test_failed_documents_are_retried_with_the_token(watched: Watched, folder: Path) -> None:
    watched.expected.append("401")
    page = watched.go("/failures?entity=Guide")
    row = page.get_by_role("row", name=scene.BROKEN)
    expect(row).to_be_visible()
    page.get_by_role("button", name="Retry Guide").click()
    dialog = page.get_by_role("dialog", name="Token")
    dialog.get_by_label("Token").fill("some-other-token")
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("The server refused this token.")).to_be_visible()
    (folder / "guides" / scene.BROKEN).rename(folder / "guides" / "menu.md")
    dialog.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_text("What failed is tried again.").first).to_be_visible()
    expect(row).not_to_be_attached()
    assert instep.load(folder).failures(["Guide"]) == []


def test_the_token_leaves_the_address(watched: Watched) -> None:
    page = watched.go(f"token={TOKEN}")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    assert page.url == f"{watched.site.address}/#/jobs"
    assert TOKEN in page.evaluate("Object.values(sessionStorage)")
    assert page.evaluate("localStorage.length") == 0


def test_a_page_outlives_its_server(watched: Watched, site: Site) -> None:
    # The second is of a request that was under way.
    watched.expected += ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "WebSocket connection"]
    page = watched.go("/wants")
    connection = page.get_by_role("banner").get_by_role("status")
    expect(connection).to_contain_text("live")
    expect(page.get_by_text("There are no open wants.")).to_be_visible()
    site.end()
    expect(connection).to_contain_text("no server")
    expect(page.get_by_text("There are no open wants.")).to_be_visible()
    # Nothing that there is satisfies it.
    want = instep.load(site.folder).want(["Letter"], as_of=datetime.now(UTC) + timedelta(days=1), by="ann")
    site.begin()
    expect(connection).to_contain_text("live")
    expect(page.get_by_role("row", name=want.id[:8])).to_contain_text("ann")
    instep.load(site.folder).cancel_want(want.id)


WAYS = (
    "/jobs",
    f"/jobs/{scene.JOB}",
    "/status",
    "/partitions/Guide%40global",
    "/failures",
    "/wants?all=1",
    "/workers",
    "/queues",
    "/configuration",
    "/search?q=water&entity=Guide",
)


def test_every_view_is_accessible(watched: Watched, ledger: Ledger) -> None:
    """On a laptop and a phone, in light and dark: nothing sticks out, everything has a name, and can be read and
    reached by the keyboard alone.
    """
    job = scene.RunningJob(ledger, slices=20)
    job.complete(job.claim(5))
    page = watched.page
    page.add_init_script(path=Path(__file__).with_name("audit.js"))
    watched.go(WAYS[0])
    for way in WAYS:
        page.evaluate("way => visit(way)", way)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Reading…")).to_have_count(0)
        expect(page.locator(".note.bad")).to_have_count(0)  # What took too long to be read is tried again.
        for width, height in ((1280, 800), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            page.evaluate("drawn()")
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                found = page.evaluate("audit()")
                assert found == [], f"{way}, {width} wide, {scheme}"
        # Again, if something was drawn while the keys were pressed.
        assert any(_reached(page) >= page.evaluate("controls()") for _ in range(3)), way
    job.complete(job.claim(15))
    job.end()


def _reached(page: Page) -> int:
    """How many controls the Tab key comes to, from the first one on, before it comes round."""
    page.evaluate("document.querySelector('.skip').focus(), seen.clear(), notice()")
    for _ in range(200):
        page.keyboard.press("Tab")
        if not page.evaluate("notice()"):
            break
    return int(page.evaluate("seen.size"))
