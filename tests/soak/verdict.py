"""Whether anything was lost or doubled, and whether what could have made it so really happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from instep.domain.jobs import JobState, SliceState
from tests.soak.fleet import Event, Fleet
from tests.soak.records import Records
from tests.soak.site import Difference, Site
from tests.soak.toll import Toll

#: Calls that would have written something. (A lease that is not renewed writes nothing.)
WRITES = frozenset(
    {"commit", "fence", "slices.complete", "slices.holds", "leases.transfer", "parts.adopt", "parts.finish", "require"}
)


@dataclass(frozen=True, slots=True)
class Numbers:
    seconds: int
    documents: int
    rows: int
    starts: int
    kills: int
    pauses: int
    outages: int
    gave_up: int
    jobs: int
    slices: int
    claims: int
    takeovers: int
    refused_by_target: int
    refused_by_ledger: int
    refused_by_itself: int
    lost: int
    duplicate: int
    stale: int
    failures: int


@dataclass(frozen=True, slots=True)
class Verdict:
    numbers: Numbers
    problems: tuple[str, ...]

    def table(self) -> str:
        rows = [(each.name.replace("_", " "), getattr(self.numbers, each.name)) for each in fields(Numbers)]
        return "\n".join(f"{name:<20}{value:>10,}" for name, value in rows)


def judge(site: Site, servers: Fleet, toll: Toll, *, seconds: float) -> Verdict:
    """After the last server has ended."""
    records, wrong, events = Records(site.engine), site.wrong(), servers.events
    refused = refusals(events)
    documents, rows = records.indexed()
    numbers = Numbers(
        seconds=round(seconds),
        documents=documents,
        rows=rows,
        starts=toll.starts,
        kills=toll.kills,
        pauses=toll.pauses + sum(event.name == "still" for event in events),
        outages=toll.outages,
        gave_up=toll.gave_up,
        jobs=len(records.jobs()),
        slices=len(records.slices()),
        claims=sum(len(event.slices) for event in events if event.name == "claimed"),
        takeovers=records.taken_over(),
        refused_by_target=refused["target"],
        refused_by_ledger=refused["ledger"],
        refused_by_itself=refused["itself"],
        lost=wrong.lost,
        duplicate=wrong.duplicate,
        stale=wrong.stale,
        failures=records.failures(),
    )
    problems = [
        *toll.problems,
        *_of_the_index(site, wrong, documents),
        *_of_the_ledger(records),
        *unique(events),
        *_of_the_last_run(events),
        *_what_never_happened(numbers),
    ]
    return Verdict(numbers, tuple(problems))


def refusals(events: Iterable[Event]) -> Counter[str]:
    """Writes that were refused, by who refused them."""
    return Counter(event.facts["by"] for event in events if event.name == "refused" and event.facts["call"] in WRITES)


def unique(events: Iterable[Event]) -> Iterator[str]:
    """No two claims of a slice have the same fence, and no slice is completed twice."""
    claims: Counter[object] = Counter()
    completions: Counter[object] = Counter()
    for event in events:
        if event.name == "claimed":
            claims.update(event.slices)
        elif event.name == "completed":
            completions.update(slice_id for slice_id, _ in event.slices)
    yield from (f"slice {each} was claimed {times} times" for each, times in claims.items() if times > 1)
    yield from (f"slice {each} was completed {times} times" for each, times in completions.items() if times > 1)


def _of_the_index(site: Site, wrong: Difference, documents: int) -> Iterator[str]:
    if wrong.total:
        yield f"the index is not exact: {wrong}"
    if documents != site.documents:
        yield f"{documents} documents are recorded, there are {site.documents}"


def _of_the_ledger(records: Records) -> Iterator[str]:
    states = records.jobs()
    yield from (f"job {each} has not ended: {states[each]}" for each in records.open_jobs())
    yield from (f"worker {each} is still registered" for each in records.workers())
    yield from (f"the lease on {each} is still held" for each in records.held_leases())
    if failures := records.failures():
        yield f"{failures} failures are listed"
    for row in records.slices():
        if states[row.job_id] != JobState.COMPLETED or row.state != SliceState.COMPLETED:
            yield f"slice {row.id} is {row.state} in a job that is {states[row.job_id]}"
        if not row.read == row.units == row.written + row.skipped + row.deleted + row.failed or row.failed:
            yield f"slice {row.id} does not add up: {row}"


def _of_the_last_run(events: Iterable[Event]) -> Iterator[str]:
    results = [event.facts["states"] for event in events if event.name == "result"]
    if not results or results[-1] != [None]:
        yield f"the last run should have found nothing to do: {results[-1:]}"


def _what_never_happened(numbers: Numbers) -> Iterator[str]:
    """Without these nothing was proved."""
    names = ("kills", "pauses", "takeovers", "refused_by_target", "refused_by_ledger", "refused_by_itself")
    yield from (f"there were no {name.replace('_', ' ')}" for name in names if not getattr(numbers, name))
