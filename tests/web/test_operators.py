"""What operators look for: what failed and why, what happened to a job, what follows from what, how it is set up."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from instep.ledger.job_log import SAID, SPARK
from instep.ledger.ledger import Ledger
from tests.web import scene
from tests.web.conftest import Watched
from tests.web.serving import Site

SCRIPT: Final = "<script>document.title = 'taken'</script>"


@pytest.fixture
def ledger(folder: Path) -> Iterator[Ledger]:
    with scene.opened(folder) as opened:
        yield opened


@pytest.fixture
def failing(ledger: Ledger) -> Iterator[scene.RunningJob]:
    """A job of five slices, in two of which something fails, for two reasons."""
    job = scene.RunningJob(ledger, slices=5, job_id=str(uuid.uuid4()))
    job.complete(job.claim(1), failed=3)
    job.complete(job.claim(1), failed=4, reason=SCRIPT)
    yield job
    job.complete(job.claim(5))
    job.end()


def test_what_failed_in_a_job_is_a_link_to_it_by_reason(watched: Watched, failing: scene.RunningJob) -> None:
    page = watched.go(f"/jobs/{failing.job_id}")
    page.get_by_role("link", name="7 failed").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Failures")
    groups = page.get_by_role("table", name="Failures by reason")
    expect(groups.get_by_role("row", name="no text in it")).to_contain_text("3")
    expect(groups.get_by_role("row").nth(1)).to_contain_text("4")
    expect(page.get_by_text("7 failures", exact=True)).to_be_visible()
    # What documents are called, and say, is text.
    groups.get_by_role("link", name=SCRIPT).click()
    documents = page.get_by_role("table", name="Failures").get_by_role("rowheader")
    expect(documents).to_have_count(4)
    expect(documents.first).to_contain_text("<i>")
    expect(page).to_have_title("Failures · Instep")


def test_what_is_left_out_on_purpose_is_listed_and_is_no_failure(watched: Watched, failing: scene.RunningJob) -> None:
    failing.complete(failing.claim(1), failed=5, reason="larger than 10 MB", skipped=True)
    page = watched.go(f"/failures?job={failing.job_id}")
    groups = page.get_by_role("table", name="Failures by reason")
    expect(groups.get_by_role("row", name="larger than 10 MB")).to_contain_text("5")
    expect(page.get_by_text("7 failures, 5 left out on purpose", exact=True)).to_be_visible()


def test_the_log_of_a_job_is_shown_with_the_way_to_sparks_page(
    watched: Watched, ledger: Ledger, failing: scene.RunningJob
) -> None:
    page = watched.go(f"/jobs/{failing.job_id}")
    expect(page.get_by_text("Nothing was said of it.")).to_be_visible()
    # Whatever a worker says, only a page of the web becomes a link.
    ledger.job_log.add(failing.job_id, SPARK, "javascript:alert(1)")
    ledger.job_log.add(failing.job_id, SAID, f"a wave has failed: {SCRIPT}", ref="Letter@global")
    page.reload()
    expect(page.get_by_role("row", name=f"a wave has failed: {SCRIPT}")).to_contain_text("Letter")
    expect(page.get_by_role("link", name="Spark's own page")).to_have_count(0)
    ledger.job_log.add(failing.job_id, SPARK, "http://127.0.0.1:4040")
    page.reload()
    expect(page.get_by_role("link", name="Spark's own page")).to_have_attribute("href", "http://127.0.0.1:4040")


def test_dependencies_lead_to_entities_and_durations_to_their_jobs(watched: Watched) -> None:
    page = watched.go("/status")
    graph = page.get_by_role("region", name="Graph of dependencies")
    expect(graph.get_by_role("link", name="Answer, indexed")).to_be_visible()
    graph.get_by_role("link", name="Guide, indexed").click()
    bars = page.get_by_role("region", name="Durations of jobs").get_by_role("link")
    expect(bars.first).to_be_visible()
    bars.first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Job")


def test_settings_are_shown_and_defaults_if_asked_for(watched: Watched) -> None:
    page = watched.go("/configuration")
    table = page.get_by_role("table", name="entities Answer")
    expect(table.get_by_role("row", name="depends_on")).to_contain_text("Guide")
    expect(table.get_by_role("row", name="priority")).to_have_count(0)
    page.get_by_role("button", name="Defaults too").click()
    expect(table.get_by_role("row", name="priority")).to_be_visible()


def test_a_project_in_which_nothing_ran_says_what_to_do_first(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "instep.yaml").write_text(
        "name: new\ntargets: {index: {type: lance, uri: .instep/index}}\n"
        "entities:\n  Guide: {source: {type: files, path: .}, embed: {type: hashing, dimensions: 64}}\n"
    )
    with Site(tmp_path).served() as site:
        page: Page = browser.new_page()
        page.goto(f"{site.address}/#/jobs")
        steps = page.get_by_role("region", name="First steps")
        expect(steps).to_contain_text("Declared in instep.yaml: Guide")
        expect(steps.get_by_role("listitem").first).to_contain_text("instep check")
        page.close()


@pytest.mark.parametrize("way", ["failures/groups", "jobs/JOB/log", "jobs?entity=Letter", "configuration"])
def test_lists_come_in_pages(failing: scene.RunningJob, ledger: Ledger, site: Site, way: str) -> None:
    for number in range(3):
        ledger.job_log.add(failing.job_id, SAID, f"line {number}")
    way = way.replace("JOB", failing.job_id)
    limited = f"{way}{'&' if '?' in way else '?'}limit="
    first = _read(site, f"{limited}1")
    assert len(first["items"]) == 1
    if first["next"]:  # Of Letter there may be one job.
        after = "before" if way.endswith("log") else "after"
        assert _read(site, f"{limited}1&{after}={first['next']}")["items"] != first["items"]
    with pytest.raises(urllib.error.HTTPError):
        _read(site, f"{limited}1001")


def _read(site: Site, way: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{site.address}/api/{way}") as answer:
        found: dict[str, Any] = json.load(answer)
    return found
