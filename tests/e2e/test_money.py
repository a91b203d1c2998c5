"""Money: what is billed is counted, and a budget is not exceeded, whatever dies and however many workers there are."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

import instep
from instep.answers.plan import Cost
from instep.container import Container
from instep.domain.jobs import JobState
from instep.domain.money import UNIT, Spent
from instep.errors import UserError
from instep.pipeline.documents.embed.embedder import PROBE

from .conftest import Location
from .paid_endpoint import MODEL, PaidEndpoint, serving, tokens

#: For a million tokens.
PRICE = 1_000_000.0


@pytest.fixture
def endpoint() -> Iterator[PaidEndpoint]:
    with serving(PaidEndpoint()) as server:
        yield server


def declare(place: Location, endpoint: PaidEndpoint, *, budget: int | None = None, more: str = "") -> None:
    """At a price of one for each token, what is spent is what was billed."""
    place.declare(chunk=200)
    file = place.root / "instep.yaml"
    said = f", budget: {budget}" if budget is not None else ""
    declared = (
        f"embed: {{type: openai, url: '{endpoint.url}', model: {MODEL}, dimensions: 3, batch: 4, price: {PRICE}"
        f"{said}{more}}}"
    )
    file.write_text(file.read_text().replace("embed: {type: hashing, dimensions: 32}", declared))


def spent(place: Location) -> dict[str, Spent]:
    """What each job has spent."""
    container = Container(place.open().project)
    with closing(container), closing(container.ledger(read_only=True)) as ledger:
        found = ledger.spending.of_jobs([job.id for job in ledger.jobs.newest(limit=100)])
        return {job_id: each["Document"] for job_id, each in found.items()}


def cost_of(place: Location) -> Cost:
    (plan,) = place.open().plan()
    assert plan.cost is not None
    return plan.cost


def test_a_plan_says_within_two_percent_what_is_then_billed(place: Location, endpoint: PaidEndpoint) -> None:
    declare(place, endpoint)
    # The same text twice is paid for once.
    for name in ("one", "two"):
        (place.docs / f"{name}.md").write_text("# Twins\n\nThe same text in both documents.\n")
    said = cost_of(place)
    assert (endpoint.requests, place.open().jobs()) == (0, [])
    assert (said.documents, said.read, said.counted) == (62, 62, True)
    result = place.run()
    billed = endpoint.billed - tokens([PROBE])
    # Two tasks that meet it at the same moment both ask.
    assert said.texts in (result.counts.embedded, result.counts.embedded - 1)
    assert said.tokens == pytest.approx(billed, rel=0.02)
    assert said.cost == pytest.approx(billed, rel=0.02)
    assert said.tokens != billed or billed > 10_000


def test_a_plan_does_not_count_what_was_paid_for(place: Location, endpoint: PaidEndpoint) -> None:
    declare(place, endpoint)
    place.run()
    changed = sorted(place.docs.rglob("*.md"))[0]
    changed.write_text(changed.read_text() + "\n## More\n\nA new ending that was not there before.\n")
    said, before = cost_of(place), endpoint.billed
    assert said.documents == 1
    place.run()
    assert said.tokens == pytest.approx(endpoint.billed - before, abs=1)
    (plan,) = place.open().plan(full_refresh=True)
    assert plan.cost is not None
    assert (plan.cost.texts, plan.cost.tokens, plan.cost.cost) == (0, 0, 0)
    (plan,) = place.open().plan()
    assert plan.cost is None


def test_a_plan_of_many_documents_says_that_it_looks_at_a_sample(
    place: Location, endpoint: PaidEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.entities.documents.costs.MOST", 30)
    monkeypatch.setattr("instep.pipeline.documents.texts_counted._EXACT", 50)
    declare(place, endpoint)
    said = cost_of(place)
    assert (said.documents, said.read) == (60, 30)
    assert "from a sample of 30 of 60 documents" in str(said)
    place.run()
    assert said.tokens == pytest.approx(endpoint.billed, rel=0.15)


def test_tokens_of_an_unknown_model_are_estimated_and_that_is_said(place: Location, endpoint: PaidEndpoint) -> None:
    declare(place, endpoint)
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace(MODEL, "bge-m3"))
    said = cost_of(place)
    assert not said.counted
    assert "about" in str(said)
    assert "four characters" in str(said)


def test_a_plan_without_a_price_says_texts_and_tokens(place: Location, endpoint: PaidEndpoint) -> None:
    declare(place, endpoint)
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace(f", price: {PRICE}", ""))
    said = cost_of(place)
    assert (said.tokens or 0) > 10_000
    assert said.cost is None
    assert str(said).startswith("embeds ")
    result = place.run()
    assert result.spent.tokens == endpoint.billed - tokens([PROBE])
    (job,) = place.open().jobs()
    assert job.spent is not None
    assert (job.spent.tokens, job.spent.cost) == (result.spent.tokens, None)


def test_a_job_has_cost_what_its_endpoint_has_billed(place: Location, endpoint: PaidEndpoint) -> None:
    declare(place, endpoint)
    result = place.run()
    assert endpoint.asked.count(PROBE) == 1
    billed = endpoint.billed - tokens([PROBE])
    (only,) = spent(place).values()
    assert (only.texts, only.tokens, only.cost) == (result.counts.embedded, billed, billed * UNIT)


def test_a_budget_stops_the_job_before_it_is_exceeded_and_more_goes_on(place: Location, endpoint: PaidEndpoint) -> None:
    declare(place, endpoint)
    place.run()
    whole = endpoint.billed
    for each in (place.root / ".instep").iterdir():
        subprocess.run(["rm", "-r", str(each)], check=True)
    endpoint.billed, endpoint.asked = 0, []

    declare(place, endpoint, budget=whole // 2)
    with pytest.raises(UserError, match=r"the budget of .* would be exceeded: .* is spent") as stopped:
        place.run()
    assert "Raise `budget`" in str(stopped.value)
    assert whole // 2 - 2_000 < endpoint.billed <= whole // 2
    assert sum(each.cost for each in spent(place).values()) <= endpoint.billed * UNIT
    again = endpoint.billed
    with pytest.raises(UserError, match="would be exceeded"):
        place.run()
    assert endpoint.billed <= whole // 2
    assert endpoint.billed - again < 2_000

    declare(place, endpoint, budget=2 * whole)
    assert place.run().state is JobState.COMPLETED
    texts = [text for text in endpoint.asked if text != PROBE]
    assert len(set(texts)) == len(texts), "what was paid for before is not asked for again"
    assert place.wrong() == ""


def test_what_needs_no_embedding_is_done_when_nothing_is_left(place: Location, endpoint: PaidEndpoint) -> None:
    declare(place, endpoint)
    place.run()
    declare(place, endpoint, budget=0)
    gone = sorted(place.docs.rglob("*.md"))[0]
    gone.unlink()
    billed = endpoint.billed
    assert place.run().counts.deleted == 1
    assert endpoint.billed == billed
    (place.docs / "new.md").write_text("# New\n\nA text that costs something.\n")
    with pytest.raises(UserError, match=r"the budget of 0\.00"):
        place.run()
    assert endpoint.billed == billed


def test_an_answer_that_does_not_say_what_it_cost_counts_as_the_most_that_it_can(
    place: Location, endpoint: PaidEndpoint
) -> None:
    endpoint.tells = False
    declare(place, endpoint)
    place.run()
    (only,) = spent(place).values()
    assert (only.tokens, only.cost > endpoint.billed * UNIT) == (0, True)


def test_an_outage_costs_nothing(place: Location, endpoint: PaidEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.jobs.wave.OUTAGE_SECONDS", 0.5)
    declare(place, endpoint, budget=10**9)
    place.run()
    before = spent(place)
    (place.docs / "new.md").write_text("# New\n\nA text that costs something.\n")
    endpoint.away = True
    with pytest.raises(UserError, match="503"):
        place.run()
    assert sum(each.cost for each in spent(place).values()) == sum(each.cost for each in before.values())


@pytest.mark.parametrize("protocol", ["cohere", "voyage"])
def test_other_apis_are_paid_by_what_they_say_and_have_a_budget_too(
    place: Location, endpoint: PaidEndpoint, protocol: str
) -> None:
    endpoint.speaks = protocol
    declare(place, endpoint)
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace("type: openai", f"type: {protocol}").replace(MODEL, "embed-v4.0"))
    said = cost_of(place)
    assert (said.counted, said.cost) == (False, said.tokens)
    place.run()
    whole = endpoint.billed - tokens([PROBE])
    (only,) = spent(place).values()
    assert (only.tokens, only.cost) == (whole, whole * UNIT)
    for each in (place.root / ".instep").iterdir():
        subprocess.run(["rm", "-r", str(each)], check=True)
    endpoint.billed = 0
    file.write_text(file.read_text().replace(f"price: {PRICE}", f"price: {PRICE}, budget: {whole // 2}"))
    with pytest.raises(UserError, match=r"the budget of .* would be exceeded"):
        place.run()
    assert whole // 4 < endpoint.billed <= whole // 2


_RUN = "import instep; instep.load('.').run()"


def test_what_a_killed_run_may_have_spent_counts_and_the_budget_holds(place: Location, endpoint: PaidEndpoint) -> None:
    """Killed in the middle of a request, time after time, each of which is billed."""
    budget = 12_000
    declare(place, endpoint, budget=budget)
    for _ in range(30):
        endpoint.hangs_after = endpoint.requests + 3
        endpoint.hanging.clear()
        endpoint.answers.clear()
        process = subprocess.Popen([sys.executable, "-c", _RUN], cwd=place.root, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not endpoint.hanging.wait(0.05):
            pass
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
        endpoint.answers.set()
        if "would be exceeded" in said:
            break
    else:
        pytest.fail("it never came to its budget")
    assert 0 < endpoint.billed <= budget


def test_workers_share_the_budget(place: Location, endpoint: PaidEndpoint) -> None:
    budget = 8_000
    declare(place, endpoint, budget=budget)
    processes = [
        subprocess.Popen([sys.executable, "-c", _RUN], cwd=place.root, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [process.communicate()[1] for process in processes]
    assert any("would be exceeded" in each for each in said)
    assert 0 < endpoint.billed <= budget


@pytest.mark.proof
@pytest.mark.spark
def test_tasks_of_spark_tell_what_they_were_billed_and_keep_to_the_budget(
    place: Location, endpoint: PaidEndpoint
) -> None:
    declare(place, endpoint, budget=12_000)
    with pytest.raises(UserError, match="would be exceeded"):
        place.run(engine="spark")
    assert 0 < endpoint.billed <= 12_000
    declare(place, endpoint, budget=10**6)
    before, known = endpoint.billed, sum(each.tokens for each in spent(place).values())
    assert place.run(engine="spark").state is JobState.COMPLETED
    assert sum(each.tokens for each in spent(place).values()) - known == endpoint.billed - before
    assert place.wrong() == ""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("budget: 5", "needs the price of a million tokens"),
        ("price: 0", "must be more than 0"),
        ("price: 1, budget: -1", "must be at least 0"),
        ("price: 1e300", "must be at most 1"),
        ("price: 1, budget: 1e300", "must be at most 1"),
    ],
)
def test_a_budget_needs_a_price_and_both_are_amounts(
    place: Location, endpoint: PaidEndpoint, more: str, said: str
) -> None:
    declare(place, endpoint)
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace(f"price: {PRICE}", more))
    with pytest.raises(UserError, match=said):
        instep.load(place.root)


@pytest.mark.parametrize("url", ["http://localhost:99999/v1", "http://[::1/v1"])
def test_an_endpoint_that_cannot_be_an_address_is_refused(place: Location, endpoint: PaidEndpoint, url: str) -> None:
    declare(place, endpoint, more=", requests_at_once: 2")
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace(endpoint.url, url))
    with pytest.raises(UserError, match="has no valid host or port"):
        instep.load(place.root)
