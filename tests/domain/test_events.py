"""Events as text: there and back, older versions, and what cannot be read."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain import events as e
from instep.domain.counts import Counts
from instep.domain.instances import Reason
from instep.domain.settings import JobSettings
from instep.domain.wants import Retries

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
times = st.integers(0, 2**63 - 1)
many = st.lists(texts, max_size=3).map(tuple)
settings = st.builds(JobSettings, slice_rows=st.none() | st.integers(100, 50_000), retry_failures=st.booleans())
retries = st.builds(
    Retries, max_attempts=st.integers(1, 9), backoff=st.lists(st.integers(0, 9_000), min_size=1).map(tuple)
)
counts = st.builds(Counts, read=times, written=times)


def values_of(kind: type[e.Event]) -> st.SearchStrategy[e.Event]:
    fields: dict[str, Any] = {
        "ref": texts, "reason": st.sampled_from(Reason), "by": texts, "why": texts, "generation": texts,
        "build": times, "job": texts, "watermark": times, "physical": texts, "revision": texts,
        "fingerprint": st.dictionaries(texts, texts, max_size=3), "instance": texts, "target": times, "floor": times,
        "inputs": many, "counts": counts, "error": texts, "retry": st.booleans(), "ttl": times, "instances": many,
        "wants": many, "generations": many, "want": texts, "refs": many, "missing": many, "as_of": st.none() | times,
        "fresh_within": st.none() | times, "traceparent": texts,
        "settings": st.none() | settings, "retries": st.none() | retries, "final": st.booleans(),
    }  # fmt: skip
    return st.builds(kind, **{name: fields[name] for name in kind.__struct_fields__})


@given(st.sampled_from(list(e.EVENTS.types.values())).flatmap(values_of))
def test_an_event_survives_writing_and_reading(event: e.Event) -> None:
    assert e.decode(event.KIND, event.VERSION, e.encode(event)) == event


def test_kinds_are_named_once_and_for_ever() -> None:
    assert {kind: each.VERSION for kind, each in e.EVENTS.types.items()} == {
        "instance.created": 1, "instance.imported": 1, "instance.building": 1, "instance.live": 1,
        "instance.failed": 1, "instance.refreshing": 1, "instance.refreshed": 1, "instance.refresh-failed": 1,
        "instance.tainted": 1, "instance.expired": 1, "instance.served": 1, "collected": 1, "want.created": 3,
        "want.failed": 1, "want.canceled": 1, "dependency.missed": 1, "generation.promoted": 1,
        "partition.dropped": 1,
    }  # fmt: skip


#: As it is in logs that were written already: none of this may ever become unreadable.
WRITTEN = [
    ("instance.created", '{"ref":"Chunk@global","reason":"first build","by":"plan"}'),
    ("instance.imported", '{"ref":"Chunk@global","build":3,"job":"j","watermark":7,"physical":"p","fingerprint":{}}'),
    ("instance.building", '{"instance":"u","job":"j","target":9,"fingerprint":{"a":"1"},"inputs":["v"]}'),
    ("instance.live", '{"instance":"u","job":"j","watermark":9,"physical":"p","counts":{"read":1,"written":1}}'),
    ("instance.failed", '{"instance":"u","job":"j","error":"why","retry":true}'),
    ("instance.refreshing", '{"instance":"u","job":"j","floor":9,"target":12}'),
    ("instance.refreshed", '{"instance":"u","job":"j","watermark":12,"counts":{"read":0}}'),
    ("instance.refresh-failed", '{"instance":"u","job":"j","error":"why"}'),
    ("instance.tainted", '{"instance":"u","why":"wrong","by":"ann"}'),
    ("instance.expired", '{"instance":"u","ttl":60000}'),
    ("instance.served", '{"instance":"u"}'),
    ("generation.promoted", '{"ref":"Chunk@global","generation":"v2","by":"ann"}'),
    ("collected", '{"instances":["u"],"wants":["w"]}'),
    ("want.created", '{"want":"w","refs":["Chunk@global"],"fresh_within":3600000}'),
    ("want.failed", '{"want":"w","error":"why"}'),
    ("want.canceled", '{"want":"w"}'),
    ("dependency.missed", '{"job":"j","instances":["u"],"want":"w","missing":["Document@global"]}'),
]


@pytest.mark.parametrize(("kind", "text"), WRITTEN)
def test_events_of_older_versions_stay_readable(kind: str, text: str) -> None:
    event = e.decode(kind, 1, text)
    assert isinstance(event, e.Event)
    assert e.decode(kind, 1, e.encode(event)) == event


@pytest.mark.parametrize(("kind", "text"), WRITTEN)
def test_a_field_that_is_missing_or_not_known_makes_it_unreadable(kind: str, text: str) -> None:
    for bad in ("{}", text[:-1] + ',"surprise":1}', text[:-1], text.replace('"', "'"), f"[{text}]"):
        if (kind, bad) != ("collected", "{}"):
            read = e.decode(kind, 1, bad)
            assert isinstance(read, e.Unreadable)
            assert read.name == "malformed"


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "1", '{"instance":1}', '{"instance":""}', '{"instance":"u","ttl":-1}',
     '{"instance":"u","ttl":1.5}', '{"instance":"u","ttl":99999999999999999999}',
     '{"instance":"\\ud800"}', '{"instance":"u"}x', "\ud800",
     '{"instance":' + "[" * 100_000, "\x00"],
)  # fmt: skip
def test_malformed_text_is_unreadable(text: str) -> None:
    read = e.decode("instance.expired", 1, text)
    assert isinstance(read, e.Unreadable)
    assert (read.name, read.reason.startswith("instance.expired")) == ("malformed", True)


@given(st.text(), st.integers(), st.text())
def test_no_text_raises_an_exception(kind: str, version: int, text: str) -> None:
    assert isinstance(e.decode(kind, version, text), e.Unreadable)
    assert isinstance(e.decode("want.canceled", version, text), e.Unreadable)


def test_kinds_and_versions_from_the_future_are_named() -> None:
    unknown = e.decode("instance.teleported", 1, "{}")
    newer = e.decode("want.canceled", 2, '{"want":"w"}')
    zero = e.decode("want.canceled", 0, '{"want":"w"}')
    assert isinstance(unknown, e.Unreadable)
    assert isinstance(newer, e.Unreadable)
    assert isinstance(zero, e.Unreadable)
    assert (unknown.name, newer.name, zero.name) == ("unknown-kind", "unknown-version", "unknown-version")
    assert "instance.teleported" in unknown.reason


def test_half_a_character_in_an_error_does_not_stop_a_job_from_failing() -> None:
    event = e.InstanceFailed(instance="u", job="j", error="cannot read caf\udce9.txt")
    read = e.decode(event.KIND, event.VERSION, e.encode(event))
    assert isinstance(read, e.InstanceFailed)
    assert read.error == "cannot read caf?.txt"


class Tainted(e.Event, frozen=True, kw_only=True):
    """As it might be one day: two fields became one, then that was renamed."""

    KIND: ClassVar[str] = "instance.tainted"
    VERSION: ClassVar[int] = 3

    instance: str
    because: str


def joined(fields: dict[str, Any]) -> dict[str, Any]:
    return {"instance": fields["instance"], "reason": f"{fields['why']} ({fields['by']})"}


def renamed(fields: dict[str, Any]) -> dict[str, Any]:
    return {"instance": fields["instance"], "because": fields["reason"]}


def test_older_versions_are_brought_to_the_newest_when_read() -> None:
    kind = Tainted.KIND
    catalogue = e.Catalogue((Tainted,), {(kind, 1): joined, (kind, 2): renamed})
    newest = Tainted(instance="u", because="wrong (ann)")
    assert catalogue.decode(kind, 1, '{"instance":"u","why":"wrong","by":"ann"}') == newest
    assert catalogue.decode(kind, 2, '{"instance":"u","reason":"wrong (ann)"}') == newest
    assert catalogue.decode(kind, 3, e.encode(newest)) == newest
    for version, bad in ((1, "{}"), (1, "[1]"), (2, '{"instance":5,"reason":"x"}'), (2, "no JSON")):
        read = catalogue.decode(kind, version, bad)
        assert isinstance(read, e.Unreadable)
        assert read.name == "malformed"


def test_an_older_version_without_an_upcaster_is_noticed_before_anything_is_read() -> None:
    with pytest.raises(ValueError, match="version 2 of instance"):
        e.Catalogue((Tainted,), {(Tainted.KIND, 1): joined})


def test_log_rows_are_read_in_order_including_unreadable_ones() -> None:
    rows = [(1, 10, "want.canceled", 1, '{"want":"w"}'), (2, 11, "nothing", 1, "{}")]
    first, second = e.read(rows)
    assert first == e.Recorded(1, 10, e.WantCanceled(want="w"))
    assert (second.sequence, second.at, isinstance(second.event, e.Unreadable)) == (2, 11, True)
