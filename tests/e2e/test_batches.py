"""The batch API: half the price, and nothing submitted twice, whatever step the process is killed in."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from instep.domain.jobs import JobState
from instep.domain.money import UNIT
from instep.errors import UserError
from instep.pipeline.documents.embed.embedder import PROBE

from .batch_endpoint import BatchEndpoint
from .conftest import Location
from .paid_endpoint import MODEL, serving, tokens
from .test_money import PRICE, cost_of, spent


@pytest.fixture
def endpoint() -> Iterator[BatchEndpoint]:
    with serving(BatchEndpoint()) as server:
        assert isinstance(server, BatchEndpoint)
        yield server


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.jobs.batching.FIRST_LOOK", 0.02)
    monkeypatch.setattr("instep.jobs.batching.ON_ITS_WAY", 500)


def declare(place: Location, endpoint: BatchEndpoint, *, more: str = "") -> None:
    place.declare(chunk=200)
    file = place.root / "instep.yaml"
    declared = (
        f"embed: {{type: openai, url: '{endpoint.url}', model: {MODEL}, dimensions: 3, price: {PRICE}, "
        f"batch_api: true{more}}}"
    )
    file.write_text(file.read_text().replace("embed: {type: hashing, dimensions: 32}", declared))


def twice(endpoint: BatchEndpoint) -> list[str]:
    """Texts that were embedded more than once."""
    return [text for text, times in Counter(endpoint.asked).items() if times > 1 and text != PROBE]


def test_a_batch_costs_half_and_the_wave_finds_its_vectors(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint)
    said = cost_of(place)
    result = place.run()
    assert result.state is JobState.COMPLETED
    assert (len(endpoint.batches), twice(endpoint)) == (1, [])
    assert endpoint.billed == tokens([PROBE]), "all else came by the batch"
    (only,) = spent(place).values()
    assert (only.tokens, only.cost) == (endpoint.batched, endpoint.batched * UNIT // 2)
    assert said.cost == pytest.approx(endpoint.batched / 2, rel=0.02)
    assert endpoint.files == {}, "no texts stay there"
    assert place.wrong() == ""


def test_the_key_is_in_its_header_in_every_request(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint, more=", api_key: k-secret-of-theirs, api_key_header: X-Gateway-Key")
    assert place.run().state is JobState.COMPLETED
    assert {(each.get("X-Gateway-Key"), each.get("Authorization")) for each in endpoint.headers} == {
        ("k-secret-of-theirs", None)
    }


def test_a_refresh_submits_what_is_new_and_nothing_if_nothing_is(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint)
    place.run()
    changed = sorted(place.docs.rglob("*.md"))[0]
    changed.write_text(changed.read_text() + "\n## More\n\nA new ending that was not there before.\n")
    before = len(endpoint.asked)
    place.run()
    assert (len(endpoint.batches), len(endpoint.asked) - before) == (2, 1)
    assert place.run(full_refresh=True).promoted
    assert (len(endpoint.batches), twice(endpoint)) == (2, [])


def test_a_text_that_a_batch_refuses_fails_alone(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint)
    (place.docs / "rude.md").write_text("# Rude\n\nThis is refused.\n")
    assert place.run().state is JobState.COMPLETED_WITH_ERRORS
    (failure,) = place.open().failures()
    assert (failure.stage, failure.uri.rpartition("/")[2]) == ("embed", "rude.md")
    assert (len(endpoint.batches), twice(endpoint)) == (1, [])


def test_what_an_expired_batch_has_done_is_kept(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint)
    endpoint.ends = "expired"
    assert place.run().state is JobState.COMPLETED
    assert len(endpoint.batches) > 3
    assert twice(endpoint) == []
    assert sum(each.tokens for each in spent(place).values()) == endpoint.batched


def test_a_batch_that_fails_says_why_and_the_next_run_submits_another(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint)
    endpoint.ends = "failed"
    with pytest.raises(UserError, match=r"batch_\w+ has failed: The model is not for batches"):
        place.run()
    assert len(endpoint.batches) == 1
    assert sum(each.cost for each in spent(place).values()) == 0
    endpoint.ends = "completed"
    assert place.run().state is JobState.COMPLETED
    assert (len(endpoint.batches), twice(endpoint)) == (2, [])


def test_a_batch_that_is_too_large_is_submitted_in_parts(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint)
    endpoint.most = 300
    assert place.run().state is JobState.COMPLETED
    ended = Counter(each["status"] for each in endpoint.batches.values())
    assert (ended["failed"], ended["completed"] > 3, twice(endpoint)) == (2, True, [])
    assert place.wrong() == ""


@pytest.mark.proof
def test_several_workers_submit_each_text_once(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint)
    runs = [subprocess.Popen([sys.executable, "-c", _RUN], cwd=place.root) for _ in range(2)]
    assert [each.wait(60) for each in runs] == [0, 0]
    assert twice(endpoint) == []
    assert place.wrong() == ""


def test_a_budget_holds_for_batches(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint, more=", budget: 4000")
    with pytest.raises(UserError, match="would be exceeded"):
        place.run()
    assert 3_000 < endpoint.batched / 2 <= 4_000
    assert twice(endpoint) == []
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace("budget: 4000", "budget: 400000"))
    assert place.run().state is JobState.COMPLETED
    assert twice(endpoint) == []
    assert place.wrong() == ""


def test_a_prompt_before_each_text_is_in_the_budget_of_batches(place: Location, endpoint: BatchEndpoint) -> None:
    prompt = "of all that is kept in our house this is what stands in one of its many papers: " * 20
    declare(place, endpoint, more=f", document_prompt: '{prompt}', budget: 4000")
    with pytest.raises(UserError, match="would be exceeded"):
        place.run()
    assert 0 < endpoint.batched / 2 <= 4_000


_RUN = """
import instep
from instep.jobs import batching
batching.FIRST_LOOK = 0.02
instep.load('.').run()
"""
#: The request in which the process is killed, whether it has had its effect by then, and the batches there are in the
#: end: with one submitted before the kill there is no other.
SHARPEST = ("POST /batches", "after")
STEPS = [
    ("POST /files", "before"),
    ("POST /files", "after"),
    ("POST /batches", "before"),
    SHARPEST,
    ("GET /batches", "before"),
    ("GET /content", "before"),
]


def _killed(place: Location, endpoint: BatchEndpoint, step: tuple[str, str], code: str = _RUN) -> None:
    """A run that is killed while it waits for the answer to this request."""
    endpoint.hang = step
    process = subprocess.Popen([sys.executable, "-c", code], cwd=place.root)
    assert endpoint.hanging.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    endpoint.hang = None
    endpoint.answers.set()


@pytest.mark.parametrize(
    "step",
    [pytest.param(each, marks=() if each == SHARPEST else pytest.mark.proof, id=" ".join(each)) for each in STEPS],
)
def test_nothing_is_submitted_twice_after_a_kill(
    place: Location, endpoint: BatchEndpoint, step: tuple[str, str]
) -> None:
    declare(place, endpoint)
    _killed(place, endpoint, step)
    # Batches of other programs are there, too, more than fit on a page.
    for _ in range(3):
        other = endpoint.create(
            {
                "input_file_id": endpoint.file(b"", "other.jsonl", "batch")["id"],
                "endpoint": "/v1/embeddings",
                "completion_window": "24h",
                "metadata": {},
            }
        )
        endpoint.batches[other["id"]]["created_at"] += 5
    result = place.run()
    assert result.state is JobState.COMPLETED
    assert (len(endpoint.batches) - 3, twice(endpoint)) == (1, [])
    assert sum(each.tokens for each in spent(place).values()) == endpoint.batched
    assert place.wrong() == ""
    assert place.run().state is None


def test_another_server_takes_what_the_batch_of_a_dead_worker_gave(place: Location, endpoint: BatchEndpoint) -> None:
    """It has a cache of its own, with nothing in it."""
    declare(place, endpoint)
    _killed(place, endpoint, SHARPEST)
    place.run()
    shutil.rmtree(place.root / ".instep" / "embeddings")
    assert place.run(full_refresh=True).promoted
    assert (len(endpoint.batches), twice(endpoint)) == (1, [])
    assert sum(each.tokens for each in spent(place).values()) == endpoint.batched, "it is paid for once"


def test_a_batch_whose_answers_are_gone_from_the_api_is_submitted_again(
    place: Location, endpoint: BatchEndpoint
) -> None:
    """A worker was killed, and a month has passed, or somebody has removed the files."""
    declare(place, endpoint)
    _killed(place, endpoint, ("GET /content", "before"))
    endpoint.files.clear()
    assert place.run().state is JobState.COMPLETED
    assert len(endpoint.batches) == 2
    assert sum(each.cost for each in spent(place).values()) * 2 >= endpoint.batched * UNIT, "the first one counts, too"
    assert place.wrong() == ""


def test_the_file_of_a_batch_that_was_never_made_is_removed(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint)
    _killed(place, endpoint, ("POST /batches", "before"))
    assert len(endpoint.files) == 1
    place.run()
    assert (endpoint.files, twice(endpoint)) == ({}, [])


def test_a_batch_that_does_not_say_what_it_cost_has_cost_all_that_was_reserved(
    place: Location, endpoint: BatchEndpoint
) -> None:
    endpoint.tells = False
    declare(place, endpoint)
    place.run()
    (only,) = spent(place).values()
    assert (only.tokens, only.cost > endpoint.batched * UNIT) == (0, True)


#: Dies between two writes of its own, at the call that is named.
_DIES = """
import os, pkgutil, signal, sys
import instep
from instep.jobs import batching
batching.FIRST_LOOK = 0.02
owner, name, when = {step!r}
place = pkgutil.resolve_name(owner)
inner = getattr(place, name)
def last(*args, **kwargs):
    if when == "after":
        inner(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(place, name, last)
instep.load('.').run()
"""
_BATCHES = "instep.ledger.embedding_batches:EmbeddingBatches"
_CALLS = [
    (_BATCHES, "intend", "after"),
    (_BATCHES, "submitted", "before"),
    (_BATCHES, "submitted", "after"),
    ("instep.pipeline.documents.vectors:EmbeddingCache", "put", "before"),
    ("instep.pipeline.documents.vectors:EmbeddingCache", "put", "after"),
    ("instep.ledger.spending:Spending", "pay", "after"),
    (_BATCHES, "finish", "after"),
]


@pytest.mark.proof
@pytest.mark.parametrize("step", _CALLS, ids=lambda step: f"{step[2]} {step[1]}")
def test_nothing_is_submitted_twice_after_a_kill_between_two_writes(
    place: Location, endpoint: BatchEndpoint, step: tuple[str, str, str]
) -> None:
    declare(place, endpoint)
    died = subprocess.run([sys.executable, "-c", _DIES.format(step=step)], cwd=place.root, check=False)
    assert died.returncode == -signal.SIGKILL
    assert place.run().state is JobState.COMPLETED
    assert (len(endpoint.batches), twice(endpoint)) == (1, [])
    assert sum(each.tokens for each in spent(place).values()) == endpoint.batched
    assert place.wrong() == ""


def test_vectors_that_cannot_be_kept_are_not_bought_again(place: Location, endpoint: BatchEndpoint) -> None:
    declare(place, endpoint)
    folder = place.root / ".instep" / "embeddings"
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("no folder")
    with pytest.raises(UserError, match=r"vectors of a batch could not be kept"):
        place.run()
    assert (len(endpoint.batches), twice(endpoint)) == (1, [])


def _without(name: str) -> Callable[[Any], Any]:
    return lambda answer: {key: value for key, value in answer.items() if key != name}


def _with(**values: object) -> Callable[[Any], Any]:
    return lambda answer: answer | values


_HTML = b"<html>The service is busy.</html>"
#: Answers that an API should not give: to which request, the answer, and which of its batches are made in the end.
_GARBLED: list[tuple[str, bytes | Callable[[Any], Any]]] = [
    ("POST /files", _HTML),
    ("POST /files", b""),
    ("POST /files", b"{}"),
    ("POST /files", b"[]"),
    ("POST /files", _with(id=5)),
    ("POST /batches", _HTML),
    ("POST /batches", b""),
    ("POST /batches", b'"batch"'),
    ("POST /batches", _without("id")),
    ("POST /batches", _without("status")),
    ("POST /batches", _without("input_file_id")),
    ("POST /batches", _with(errors=["no"])),
    ("GET /batch", _HTML),
    ("GET /batch", _without("id")),
    ("GET /batch", _with(status="perplexed")),
    ("GET /batch", _with(status="completed", request_counts={"total": 5, "completed": 5, "failed": 0})),
    ("GET /batch", _with(request_counts={"total": [], "completed": "many"})),
    ("GET /content", _HTML),
    ("GET /content", b""),
    ("GET /content", lambda content: content[: len(content) // 2]),
    ("GET /content", lambda content: b"".join(content.splitlines(keepends=True)[1:])),
    ("GET /content", lambda content: b"[1]\n" + content),
]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [pytest.param(*each, marks=() if at in {0, 8, 12, 19} else pytest.mark.proof) for at, each in enumerate(_GARBLED)],
)
def test_an_answer_that_makes_no_sense_is_looked_up_and_nothing_submitted_twice(
    place: Location, endpoint: BatchEndpoint, request_: str, answer: bytes | Callable[[Any], Any]
) -> None:
    declare(place, endpoint)
    endpoint.garbles = {request_: answer}
    result = place.run()
    assert endpoint.garbles == {}
    assert result.state is JobState.COMPLETED
    assert (len(endpoint.batches), twice(endpoint)) == (1, [])
    assert endpoint.billed == tokens([PROBE]), "all else came by the batch"
    assert sum(each.tokens for each in spent(place).values()) == endpoint.batched
    assert place.wrong() == ""
