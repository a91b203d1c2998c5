"""What instances were made from, and what was canonical when, on a SQLite ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from instep.answers.lineage import Moment, lineage, moments
from instep.domain.counts import Counts
from instep.domain.events import (
    GenerationPromoted,
    InstanceBuilding,
    InstanceCreated,
    InstanceLive,
    InstanceServed,
    InstanceTainted,
    WantCreated,
)
from instep.domain.instances import InstanceState, Reason
from instep.domain.lineage import Link
from instep.domain.refs import PartitionRef
from instep.errors import UserError
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from tests.doubles.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: VirtualClock) -> Iterator[Ledger]:
    with closing(open_ledger(f"sqlite:///{tmp_path}/ledger.db", clock=clock)) as opened:
        yield opened


def built(ledger: Ledger, entity: str, *, inputs: tuple[str, ...] = (), generation: str = "") -> str:
    """UUID of the canonical instance, built by a job of its own."""
    ref = PartitionRef(entity)
    if ledger.instances.canonical(ref, generation) is None:
        ledger.events.append([InstanceCreated(ref=str(ref), reason=Reason.FIRST, generation=generation)])
    made = ledger.instances.canonical(ref, generation)
    assert made is not None
    job, now = f"job of {made.uuid}", ledger.now()
    ledger.events.append(
        [InstanceBuilding(instance=made.uuid, job=job, target=now, fingerprint={"c": "1"}, inputs=inputs)]
    )
    live = InstanceLive(instance=made.uuid, job=job, watermark=now, physical=f"{entity}__1", counts=Counts())
    ledger.events.append([live, InstanceServed(instance=made.uuid)])
    return made.uuid


def test_lineage_includes_transitive_inputs_and_dependents(ledger: Ledger) -> None:
    raw = built(ledger, "Raw")
    one, other = built(ledger, "One", inputs=(raw,)), built(ledger, "Other", inputs=(raw,))
    top = built(ledger, "Top", inputs=(one, other))
    found = lineage(ledger, "Top")
    assert [each.uuid for each in found.nodes] == [top, one, other, raw]
    assert {(each.from_, each.to) for each in found.edges} == {
        (top, one),
        (top, other),
        (one, raw),
        (other, raw),
    }
    assert found.users == ()
    assert [each.ref for each in lineage(ledger, "Raw@global").users] == ["One@global", "Other@global", "Top@global"]
    assert [each.uuid for each in lineage(ledger, one[:8]).nodes] == [one, raw]


def test_lineage_of_a_time_holds_the_instances_known_then(ledger: Ledger, clock: VirtualClock) -> None:
    first = built(ledger, "Document")
    clock.sleep(10)
    then = clock.now()
    clock.sleep(10)
    ledger.events.append([InstanceTainted(instance=first, why="wrong")])
    second = built(ledger, "Document")
    now = lineage(ledger, "Document")
    assert [each.uuid for each in now.nodes] == [second, first]
    assert [(each.from_, each.to, each.link) for each in now.edges] == [(second, first, Link.PREVIOUS)]
    before = lineage(ledger, "Document", at=then)
    assert [(each.uuid, each.state) for each in before.nodes] == [(first, InstanceState.LIVE)]
    left = lineage(ledger, second).nodes[1].instance
    assert left is not None
    assert left.state == "Tainted"
    with pytest.raises(UserError, match="no instance"):
        lineage(ledger, "Document", at=then - 60_000)


def test_an_unknown_reference_is_answered_with_the_known_ones(ledger: Ledger) -> None:
    built(ledger, "Document")
    with pytest.raises(UserError) as caught:
        lineage(ledger, "Ticket")
    assert caught.value.hint == "Known: Document@global."
    for text in ("no ref", "00000000", "", "@"):
        with pytest.raises(UserError):
            lineage(ledger, text)


def test_an_instance_is_found_by_the_beginning_of_its_uuid_if_that_is_plain(
    ledger: Ledger, clock: VirtualClock
) -> None:
    clock.sleep(60)
    before = clock.now()
    clock.sleep(60)
    uuid = built(ledger, "Document")
    for text in (uuid, uuid[:8], uuid[:4], uuid[:13]):
        assert lineage(ledger, text).nodes[0].uuid == uuid
    unknown = f"{uuid[:9]}ffff"
    with pytest.raises(UserError, match=f"no instance begins with '{unknown}'") as caught:
        lineage(ledger, unknown)
    assert caught.value.hint == "`instep history REF` lists those of a partition."
    with pytest.raises(UserError, match="at that time") as caught:
        lineage(ledger, uuid[:9], at=before)
    assert caught.value.hint == "Nothing was known then; `instep run` builds it."


def test_a_beginning_that_several_have_is_refused_unless_it_names_a_partition(ledger: Ledger) -> None:
    names = [f"E{number}" for number in range(2000)]
    ledger.events.append([InstanceCreated(ref=str(PartitionRef(name)), reason=Reason.FIRST) for name in names])
    by_beginning: dict[str, list[str]] = {}
    for name in names:
        (made,) = ledger.instances.newest(PartitionRef(name))
        by_beginning.setdefault(made.uuid[:4], []).append(name)
    # Of so many some begin alike.
    beginning, alike = next((found, names) for found, names in by_beginning.items() if len(names) > 1)
    for name in alike:
        built(ledger, name)
    with pytest.raises(UserError, match=f"{len(alike)} instances begin with '{beginning}'") as caught:
        lineage(ledger, beginning)
    assert caught.value.hint == "Give more of the UUID."
    assert lineage(ledger, built(ledger, "face")).nodes[0].instance == lineage(ledger, "face").nodes[0].instance


def test_status_of_a_time_gives_state_and_served_instance(ledger: Ledger, clock: VirtualClock) -> None:
    times = [clock.now()]

    def later() -> None:
        clock.sleep(5)
        times.append(clock.now())
        clock.sleep(5)

    clock.sleep(1)
    ledger.events.append([WantCreated(want="w", refs=("Document@global",))])
    later()
    first = built(ledger, "Document")
    later()
    ledger.events.append([InstanceTainted(instance=first)])
    later()
    second = built(ledger, "Document")
    later()
    seen = [_seen(moments(ledger, ["Document"], at=each)[0]) for each in times]
    assert seen == [
        (None, None, None, 0),
        (None, None, None, 1),
        (first, "Live", first, 0),
        (second, "Missing", first, 0),
        (second, "Live", second, 0),
    ]


def _seen(each: Moment) -> tuple[str | None, str | None, str | None, int]:
    return (
        each.instance.uuid if each.instance else None,
        str(each.instance.state) if each.instance else None,
        each.served.uuid if each.served else None,
        each.open_wants,
    )


def test_lineage_is_that_of_the_promoted_generation(ledger: Ledger) -> None:
    old, new = built(ledger, "Document"), built(ledger, "Document", generation="v2")
    assert lineage(ledger, "Document").nodes[0].uuid == old
    ledger.events.append([GenerationPromoted(ref="Document@global", generation="v2")])
    assert lineage(ledger, "Document").nodes[0].uuid == new


def test_status_includes_generations_and_undeclared_entities(ledger: Ledger, clock: VirtualClock) -> None:
    built(ledger, "Gone")
    built(ledger, "Document", generation="v2")
    found = moments(ledger, ["Document"], at=clock.now())
    assert [(each.ref, each.generation, each.instance is not None) for each in found] == [
        ("Document@global", "v2", True),
        ("Gone@global", "", True),
    ]
    assert [each.promoted for each in found] == [True, True]
    ledger.events.append([InstanceCreated(ref="Document@global", reason=Reason.FIRST)])
    found = moments(ledger, ["Empty", "Document"], at=clock.now())
    assert [(each.ref, each.generation, each.promoted) for each in found] == [
        ("Empty@global", "", False),
        ("Document@global", "", False),
        ("Document@global", "v2", True),
        ("Gone@global", "", True),
    ]
    assert [each.ref for each in moments(ledger, ["Document"], at=clock.now(), entities=["Gone"])] == ["Gone@global"]
    with pytest.raises(UserError, match="Nowhere"):
        moments(ledger, ["Document"], at=clock.now(), entities=["Nowhere"])
