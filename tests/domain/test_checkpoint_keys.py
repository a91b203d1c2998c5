"""Checkpoints of slices become one, whatever was left over and wherever it crashed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.checkpoint_keys import (
    CheckpointKey,
    CheckpointKeyError,
    Consolidation,
    Delete,
    Step,
    Waiting,
    WriteParent,
    consolidation,
    namespace_prefix,
)
from instep.domain.refs import PartitionRef, Scope
from instep.domain.windows import Begun, Complete, Progress, Window, complete_up_to, window_of

PARENT = CheckpointKey.parse("ns.100.MergeRequest")
Store = dict[CheckpointKey, Progress]

scopes = st.just(Scope()) | st.lists(st.integers(0, 9_999).map(str), min_size=1, max_size=3).map(
    lambda ids: Scope.parse("/".join(ids))
)
entities = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,5}", fullmatch=True) | st.sampled_from(["p0of5", "global", "ns"])
refs = st.builds(PartitionRef, entities, scopes)
keys = st.builds(CheckpointKey, refs) | st.builds(
    lambda ref, count, at: CheckpointKey(ref, at % count, count), refs, st.integers(1, 12), st.integers(0, 11)
)


def entry(text: str, progress: Progress) -> tuple[CheckpointKey, Progress]:
    return CheckpointKey.parse(text), progress


def slices(count: int, *watermarks: int | None) -> Store:
    """Slices of this count: complete up to a watermark, or begun (None)."""
    progress: list[Progress] = [Begun(Window(None, 100)) if mark is None else Complete(mark) for mark in watermarks]
    return dict(zip(PARENT.slices(count), progress, strict=False))


def applied(store: Store, steps: tuple[Step, ...]) -> Store:
    after = dict(store)
    for step in steps:
        match step:
            case WriteParent(key, progress):
                after[key] = progress
            case Delete(key):
                del after[key]
    return after


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("global.User", CheckpointKey(PartitionRef("User"))),
        ("global.User.p0of5", CheckpointKey(PartitionRef("User"), 0, 5)),
        ("ns.100.MergeRequest", CheckpointKey(PartitionRef("MergeRequest", Scope("100/")))),
        ("ns.100.MergeRequest.p3of5", CheckpointKey(PartitionRef("MergeRequest", Scope("100/")), 3, 5)),
        ("ns.42/9970.Issue", CheckpointKey(PartitionRef("Issue", Scope("42/9970/")))),
        ("global.p0of5", CheckpointKey(PartitionRef("p0of5"))),
    ],
)
def test_the_text_of_a_key(text: str, key: CheckpointKey) -> None:
    assert str(key) == text
    assert CheckpointKey.parse(text) == key


@given(keys)
def test_a_key_is_its_text(key: CheckpointKey) -> None:
    assert CheckpointKey.parse(str(key)) == key


@pytest.mark.parametrize(
    "text",
    [
        *("", "global", "global.", "User", "ns.User", "ns.100", "ns..User", "other.100.User", "global.100.User"),
        *("ns.100.User.p5of5", "ns.100.User.p00of5", "ns.100.User.p0of0", "ns.100.User.p0of05", "ns.100.User.p-1of5"),
        *("ns.100.User.p0of5.p0of5", "ns.100.User.q0of5", "ns.100.1User", "ns.100/.User", "ns.1.0.User", "ns.x.User"),
        *("ns.global.User", "global.User\n", "global.Us-er", "Global.User"),
    ],
)
def test_what_is_not_a_key_is_refused(text: str) -> None:
    with pytest.raises(CheckpointKeyError):
        CheckpointKey.parse(text)


def test_a_slice_beyond_its_count_cannot_be_made() -> None:
    for index, count in [(5, 5), (1, 0), (-1, 5)]:
        with pytest.raises(CheckpointKeyError):
            CheckpointKey(PARENT.ref, index, count)


def test_the_prefix_of_a_namespace_is_of_exactly_that_one() -> None:
    prefix = namespace_prefix(Scope("10/"))
    assert prefix == "ns.10."
    inside = ["ns.10.User", "ns.10.User.p0of5"]
    outside = ["ns.100.User", "ns.1.User", "ns.10/5.User", "ns.5/10.User", "global.User"]
    assert [text for text in inside + outside if str(CheckpointKey.parse(text)).startswith(prefix)] == inside
    with pytest.raises(CheckpointKeyError, match="global"):
        namespace_prefix(Scope())


@given(keys, scopes.filter(lambda scope: not scope.is_global))
def test_a_prefix_selects_by_scope(key: CheckpointKey, scope: Scope) -> None:
    assert str(key).startswith(namespace_prefix(scope)) == (key.ref.scope == scope)


# Consolidation


def test_the_parent_is_written_at_the_least_watermark_and_then_the_rest_goes() -> None:
    """A slice that an earlier attempt finished has read up to an earlier watermark."""
    result = consolidation(PARENT, slices(3, 100, 70, 90).items(), 3)
    assert isinstance(result, Consolidation)
    assert result.steps == (WriteParent(PARENT, Complete(70)), *map(Delete, PARENT.slices(3)))


def test_consolidation_waits_for_every_slice() -> None:
    """A bug of the original: it went on past an unfinished slice, whose range was lost."""
    missing, begun = slices(3, 100, 100), slices(3, 100, None, 100)
    assert consolidation(PARENT, missing.items(), 3) == Waiting((CheckpointKey(PARENT.ref, 2, 3),))
    assert consolidation(PARENT, begun.items(), 3) == Waiting((CheckpointKey(PARENT.ref, 1, 3),))
    assert consolidation(PARENT, [], 2) == Waiting(PARENT.slices(2))


def test_a_leftover_of_another_count_never_blocks() -> None:
    """A bug of the original: `p5of6` of another cut count, never to be finished, blocked for ever."""
    leftover, progress = entry("ns.100.MergeRequest.p5of6", Begun(Window(None, 10)))
    result = consolidation(PARENT, [*slices(5, *[100] * 5).items(), (leftover, progress)], 5)
    assert isinstance(result, Consolidation)
    assert result.steps[0] == WriteParent(PARENT, Complete(100))
    assert Delete(leftover) in result.steps


def test_a_leftover_of_another_count_adds_nothing() -> None:
    """Neither its watermark nor its being complete counts for the slices in force."""
    leftovers = slices(6, *[10] * 6)
    assert consolidation(PARENT, leftovers.items(), 5) == Waiting(PARENT.slices(5))
    result = consolidation(PARENT, (leftovers | slices(5, *[100] * 5)).items(), 5)
    assert isinstance(result, Consolidation)
    assert result.steps[0] == WriteParent(PARENT, Complete(100))


def test_others_are_left_alone() -> None:
    """Other namespaces, entities and scopes, whose names begin alike."""
    others = [
        entry("ns.10.MergeRequest.p0of1", Complete(1)),
        entry("ns.1000.MergeRequest.p0of1", Complete(1)),
        entry("ns.100/1.MergeRequest.p0of1", Complete(1)),
        entry("ns.100.Merge.p0of1", Complete(1)),
        entry("ns.100.MergeRequestDiff.p0of1", Begun(Window(None, 1))),
        entry("global.MergeRequest.p0of1", Complete(1)),
    ]
    result = consolidation(PARENT, [*others, *slices(1, 100).items()], 1)
    expected = (WriteParent(PARENT, Complete(100)), Delete(CheckpointKey(PARENT.ref, 0, 1)))
    assert result == Consolidation(expected)
    assert consolidation(PARENT, others, 1) == Waiting(PARENT.slices(1))


def test_what_is_deferred_is_not_indexed() -> None:
    """A bug of the original: a deferred consolidation answered Ok, so status said Indexed in mid-backfill."""
    store = slices(2, 100, None)
    assert isinstance(consolidation(PARENT, store.items(), 2), Waiting)
    assert complete_up_to(store.get(PARENT)) is None


def test_a_late_record_of_a_slice_does_not_take_its_completion_back() -> None:
    """A bug of the original: a buffered row about progress outranked the completion."""
    first, second = PARENT.slices(2)
    late = Begun(Window(None, 100))
    entries: list[tuple[CheckpointKey, Progress]]
    entries = [(first, Complete(100)), (second, Complete(100)), (first, late)]
    for order in (entries, entries[::-1]):
        assert isinstance(consolidation(PARENT, order, 2), Consolidation)


def test_a_parent_in_progress_does_not_stand_for_its_slices() -> None:
    """A bug of the original: the checkpoint of a run in progress counted. Here it is replaced when all are done."""
    begun: Store = {PARENT: Begun(Window(None, 100))}
    assert consolidation(PARENT, (begun | slices(2, 100, None)).items(), 2) == Waiting(PARENT.slices(2)[1:])
    result = consolidation(PARENT, (begun | slices(2, 100, 100)).items(), 2)
    assert isinstance(result, Consolidation)
    assert result.steps[0] == WriteParent(PARENT, Complete(100))


def test_a_parent_that_is_complete_is_not_written_again() -> None:
    """A zombie's slice, written after consolidation, neither takes the watermark back nor on."""
    for mark in (50, 100, 200, None):
        store = {PARENT: Complete(100)} | slices(2, mark)
        assert consolidation(PARENT, store.items(), 2) == Consolidation((Delete(PARENT.slices(2)[0]),))
    assert consolidation(PARENT, [(PARENT, Complete(100))], 2) == Consolidation(())


@given(
    st.lists(watermarks := st.integers(0, 200), min_size=1, max_size=4),
    st.dictionaries(st.integers(5, 8), watermarks | st.none(), max_size=4),
)
def test_a_crash_between_any_two_steps_resumes(marks: list[int], leftovers: dict[int, int | None]) -> None:
    count = len(marks)
    store = slices(count, *marks)
    for other, mark in leftovers.items():
        store |= slices(other, mark)
    whole = consolidation(PARENT, store.items(), count)
    assert isinstance(whole, Consolidation)
    for done in range(len(whole.steps) + 1):
        crashed = applied(store, whole.steps[:done])
        # Never is there a moment in which the slices are gone and the parent is not there.
        assert PARENT in crashed or done == 0
        resumed = consolidation(PARENT, crashed.items(), count)
        assert resumed == Consolidation(whole.steps[done:])
        assert applied(crashed, whole.steps[done:]) == {PARENT: Complete(min(marks))}


def test_a_crash_after_the_last_slice_consolidates_without_running_any() -> None:
    result = consolidation(PARENT, slices(5, *[100] * 5).items(), 5)
    assert isinstance(result, Consolidation)


def test_the_next_window_goes_on_from_the_least_watermark() -> None:
    """So rows that the slice finished first has not seen are read again, by all."""
    result = consolidation(PARENT, slices(2, 70, 100).items(), 2)
    assert isinstance(result, Consolidation)
    store = applied(slices(2, 70, 100), result.steps)
    assert window_of(store[PARENT], 150) == Window(70, 150)


@pytest.mark.parametrize("count", [0, -1])
def test_nothing_is_consolidated_from_no_slices(count: int) -> None:
    with pytest.raises(CheckpointKeyError):
        consolidation(PARENT, [], count)
    with pytest.raises(CheckpointKeyError):
        consolidation(CheckpointKey(PARENT.ref, 0, 2), [], 2)
