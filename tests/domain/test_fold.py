"""The fold: the scenarios of the design by name."""

from __future__ import annotations

import pytest

from instep.domain import events as e
from instep.domain.counts import Counts
from instep.domain.instances import InstanceState, Reason
from instep.domain.refs import PartitionRef, instance_id
from instep.domain.wants import Retries, WantState
from tests.domain.book import FINGERPRINT, REF, TOP, UP, Book


def test_four_wants_on_one_build_share_it() -> None:
    book = Book()
    first = book.make()
    assert book.want("w1") is WantState.IDLE
    book.build()
    assert book.state_of("w1") is WantState.BUILDING
    for id in ("w2", "w3", "w4"):
        assert book.want(id) is WantState.BUILDING
    book.live()
    for id in ("w1", "w2", "w3", "w4"):
        assert book.state_of(id) is WantState.SUCCESSFUL
        assert book.state.wants[id].instances == (first.uuid,)
    assert not book.state.open


def test_a_missed_dependency_moves_all_wants_to_upstream_building_idle_ones_too() -> None:
    book = Book()
    book.make()
    book.want("w1")
    book.build()
    for id in ("w2", "w3", "w4"):
        book.want(id)
    book.miss("up", UP)
    assert book.state_of("up") is WantState.IDLE
    for id in ("w1", "w2", "w3", "w4"):
        assert book.state_of(id) is WantState.UPSTREAM_BUILDING
        assert book.state.wants[id].upstream == ("up",)
    assert book.want("late") is WantState.UPSTREAM_BUILDING
    upstream = book.built(UP, job="other")
    assert book.state_of("up") is WantState.SUCCESSFUL
    assert book.now_of().inputs == (upstream.uuid,), "what it waited for is what it is made from"
    for id in ("w1", "late"):
        assert book.state_of(id) is WantState.BUILDING
        assert book.state.wants[id].upstream == ()
    book.live()
    assert {book.state_of(id) for id in ("w1", "w2", "w3", "w4", "late")} == {WantState.SUCCESSFUL}


def test_a_dependency_missed_before_the_build_began_moves_idle_wants() -> None:
    book = Book()
    book.make()
    assert book.want("w") is WantState.IDLE
    book.miss("up", UP)
    assert book.state_of("w") is WantState.UPSTREAM_BUILDING
    upstream = book.built(UP, job="other")
    assert book.state_of("w") is WantState.IDLE
    assert book.build().inputs == (upstream.uuid,)


def test_a_dependency_built_in_between_does_not_block_the_want() -> None:
    book = Book()
    book.built(UP)
    book.make()
    book.want("w")
    book.build()
    book.miss("up", UP)
    assert book.state_of("up") is WantState.SUCCESSFUL
    assert book.state_of("w") is WantState.BUILDING
    assert book.now_of().waits == ()
    assert book.now_of().inputs == (book.now_of(UP).uuid,)


def test_after_a_taint_new_wants_and_waiting_ones_follow_the_new_instance() -> None:
    book = Book()
    old = book.built()
    assert book.want("stale", as_of=150) is WantState.IDLE
    book.do(e.InstanceTainted(instance=old.uuid, why="wrong rows", by="ann"))
    new = book.now_of()
    assert (new.state, new.reason, new.previous) == (InstanceState.MISSING, Reason.TAINT, old.uuid)
    kept = book.state.instances[old.uuid]
    assert (kept.state, kept.why, kept.job, kept.live_at) == (InstanceState.TAINTED, "wrong rows", "job", old.live_at)
    assert book.want("w") is WantState.IDLE
    book.build()
    assert book.state_of("w") is book.state_of("stale") is WantState.BUILDING
    book.live()
    assert book.state_of("w") is WantState.SUCCESSFUL
    assert book.state.wants["w"].instances == (new.uuid,)


def test_expiry_makes_a_new_instance_to_be_built() -> None:
    book = Book()
    old = book.built()
    book.do(e.InstanceExpired(instance=old.uuid, ttl=60_000))
    assert book.state.instances[old.uuid].state is InstanceState.EXPIRED
    assert book.now_of().reason is Reason.EXPIRY
    assert book.want("w") is WantState.IDLE


@pytest.mark.parametrize("reason", [Reason.REBUILD, Reason.FINGERPRINT])
def test_a_rebuild_leaves_the_old_instance_live_and_served(reason: Reason) -> None:
    book = Book()
    old = book.built()
    book.do(e.InstanceServed(instance=old.uuid))
    book.do(e.InstanceCreated(ref=REF, reason=reason))
    left = book.state.instances[old.uuid]
    assert (left.state, left.left) == (InstanceState.LIVE, True)
    assert book.state.reading(REF) == left
    assert book.want("w") is WantState.IDLE
    assert book.refused(e.InstanceTainted(instance=old.uuid)) == "left"
    assert book.refused(e.InstanceCreated(ref=REF, reason=reason)) == "not-allowed"
    new = book.built()
    book.do(e.InstanceServed(instance=new.uuid))
    assert book.state.reading(REF) == new
    book.do(e.InstanceServed(instance=old.uuid))
    assert book.state.reading(REF) == left


def test_a_want_on_a_live_partition_succeeds_at_once() -> None:
    book = Book()
    live = book.built()
    assert book.want("w") is WantState.SUCCESSFUL
    assert book.state.wants["w"].instances == (live.uuid,)
    assert book.want("fresh", as_of=100) is WantState.SUCCESSFUL
    assert book.want("fresher", as_of=101) is WantState.IDLE
    assert book.want("within", fresh_within=book.now - 100) is WantState.SUCCESSFUL
    assert book.want("just not within", fresh_within=book.now - 101) is WantState.IDLE
    assert book.want("either", fresh_within=book.now, as_of=101) is WantState.IDLE


def test_a_refresh_satisfies_wants_that_the_watermark_did_not() -> None:
    book = Book()
    book.built()
    book.want("w", as_of=150)
    live = book.refresh()
    assert book.state_of("w") is WantState.BUILDING
    assert book.want("late", as_of=200) is WantState.BUILDING
    assert book.want("fresh enough", as_of=100) is WantState.SUCCESSFUL
    book.do(e.InstanceRefreshed(instance=live.uuid, job="refresh", watermark=180, counts=Counts(read=1, written=1)))
    assert book.state_of("w") is WantState.SUCCESSFUL
    assert book.state_of("late") is WantState.IDLE
    now = book.now_of()
    assert (now.uuid, now.job, now.refreshed_by, now.refreshes) == (live.uuid, "job", "refresh", 1)


def test_a_want_of_several_partitions_is_building_if_any_is_and_successful_when_all_are() -> None:
    book = Book()
    book.make(REF)
    assert book.want("w", REF, UP) is WantState.IDLE
    book.build(REF)
    assert book.state_of("w") is WantState.BUILDING
    first = book.live(REF)
    assert book.state_of("w") is WantState.IDLE
    book.make(UP)
    book.build(UP)
    assert book.state_of("w") is WantState.BUILDING
    book.refresh(REF)
    second = book.live(UP)
    assert book.state_of("w") is WantState.SUCCESSFUL
    assert book.state.wants["w"].instances == (first.uuid, second.uuid)


def test_a_failure_makes_a_new_instance_and_wants_fail_unless_it_is_retried() -> None:
    book = Book()
    book.make()
    book.want("w")
    book.build()
    failed = book.fail(retry=True)
    assert (failed.state, failed.error) == (InstanceState.FAILED, "disk full")
    assert book.state_of("w") is WantState.IDLE
    second = book.build(job="again")
    assert (second.previous, second.reason) == (failed.uuid, Reason.FAILURE)
    book.fail(job="again")
    assert book.state_of("w") is WantState.FAILED
    assert "disk full" in str(book.state.wants["w"].error)
    assert book.now_of().state is InstanceState.MISSING
    assert book.want("later") is WantState.IDLE


def test_a_refresh_that_fails_leaves_the_instance_live_and_fails_those_that_waited() -> None:
    book = Book()
    book.built()
    book.want("w", as_of=150)
    live = book.refresh()
    book.do(e.RefreshFailed(instance=live.uuid, job="refresh", error="no network", retry=True))
    assert book.state_of("w") is WantState.IDLE
    book.refresh()
    book.do(e.RefreshFailed(instance=live.uuid, job="refresh", error="no network"))
    assert book.state_of("w") is WantState.FAILED
    now = book.now_of()
    assert (now.uuid, now.state, now.watermark, now.error) == (live.uuid, InstanceState.LIVE, 100, "no network")


def test_an_upstream_failure_is_named_along_the_chain() -> None:
    book = Book()
    for ref in (UP, REF, TOP):
        book.make(ref)
    book.want("user", TOP)
    book.build(TOP, job="top")
    book.miss("want of top", REF, TOP, "top")
    book.build(REF, job="middle")
    book.miss("want of middle", UP, REF, "middle")
    book.build(UP, job="bottom")
    assert book.state_of("user") is book.state_of("want of top") is WantState.UPSTREAM_BUILDING
    book.fail(UP, "bottom")
    assert book.state_of("want of middle") is WantState.FAILED
    assert book.state_of("want of top") is book.state_of("user") is WantState.UPSTREAM_FAILED
    user = book.state.wants["user"]
    assert user.upstream == ("want of top",)
    failed = f"{REF} waits for {UP}, which failed: the build of {UP} failed: disk full"
    assert user.error == f"{TOP} waits for {REF}, which failed: {failed}"
    assert [book.now_of(ref).reason for ref in (UP, REF, TOP)] == [Reason.FAILURE] * 3
    assert len({each.uuid for each in book.state.instances.values()}) == 6
    assert (
        book.refused(
            e.InstanceLive(
                instance=next(each.uuid for each in book.state.instances.values() if each.ref == TOP),
                job="top",
                watermark=1,
                physical="p",
                counts=Counts(),
            )
        )
        == "left"
    )


def test_canceling_a_derivative_want_fails_the_wants_waiting_for_it() -> None:
    book = Book()
    book.built()
    book.want("w", as_of=150)
    live = book.refresh()
    book.miss("up", UP, job="refresh")
    assert book.state_of("w") is WantState.UPSTREAM_BUILDING
    book.do(e.WantCanceled(want="up", by="ann", why="not now"))
    assert book.state_of("w") is WantState.UPSTREAM_FAILED
    error = f"{REF} waits for {UP}, and that wait was canceled by ann: not now"
    assert book.state.wants["w"].error == book.now_of().error == error
    assert (book.now_of().uuid, book.now_of().state) == (live.uuid, InstanceState.LIVE)


def test_canceling_one_want_leaves_the_others_alone() -> None:
    book = Book()
    book.make()
    book.want("w1")
    book.want("w2")
    book.do(e.WantCanceled(want="w1"))
    book.built()
    assert (book.state_of("w1"), book.state_of("w2")) == (WantState.CANCELED, WantState.SUCCESSFUL)
    assert book.refused(e.WantCanceled(want="w1")) == "not-allowed"
    assert book.refused(e.WantCanceled(want="unknown")) == "unknown-want"


def test_a_dead_letter_is_canceled_by_its_answer_once() -> None:
    book = Book()
    book.make()
    book.do(e.WantCreated(want="w", refs=(REF,), retries=Retries(1)))
    book.do(e.WantFailed(want="w", error="gone", final=True))
    assert book.state.wants["w"].given_up
    book.do(e.WantCanceled(want="w", why="it was dropped"))
    assert (book.state_of("w"), book.state.wants["w"].error) == (WantState.CANCELED, "canceled: it was dropped")
    assert book.refused(e.WantCanceled(want="w")) == "not-allowed"


def test_nothing_waits_for_itself() -> None:
    book = Book()
    for ref in (UP, REF, TOP):
        book.make(ref)
        book.build(ref, job=f"job of {ref}")
    uuid = book.now_of(UP).uuid
    miss = e.DependencyMissed(job=f"job of {UP}", instances=(uuid,), want="self", missing=(UP,))
    assert book.refused(miss) == "cycle"
    book.miss("w1", REF, TOP, f"job of {TOP}")
    book.miss("w2", UP, REF, f"job of {REF}")
    miss = e.DependencyMissed(job=f"job of {UP}", instances=(uuid,), want="w3", missing=(TOP,))
    assert book.refused(miss) == "cycle"


def test_generations_are_apart_and_a_reader_gets_one_of_them_or_the_last_promoted() -> None:
    book = Book()
    one = book.built()
    book.do(e.InstanceServed(instance=one.uuid))
    two = book.make(generation="v2")
    assert two.previous is None
    assert book.want("old") is WantState.SUCCESSFUL
    assert book.want("new", generation="v2") is WantState.IDLE
    book.build(generation="v2")
    two = book.live(generation="v2")
    assert book.state_of("new") is WantState.SUCCESSFUL
    assert book.state.reading(REF) == one
    assert book.refused(e.GenerationPromoted(ref=REF, generation="v2")) == "not-allowed"
    book.do(e.InstanceServed(instance=two.uuid))
    assert book.state.reading(REF) == one, "the first generation that was served is read until another is promoted"
    for _ in range(2):
        book.do(e.GenerationPromoted(ref=REF, generation="v2"))
        assert book.state.reading(REF) == two
    assert book.state.reading(REF, "") == one
    book.do(e.InstanceCreated(ref=REF, reason=Reason.REBUILD))
    again = book.built()
    book.do(e.InstanceServed(instance=again.uuid))
    assert book.state.reading(REF) == two, "a new instance of another generation changes nothing for them"
    assert book.state.reading(REF, "") == again
    assert book.refused(e.GenerationPromoted(ref=UP, generation="v2")) == "not-allowed"
    assert book.state.reading(UP) is None
    assert book.state.generations(REF) == ["", "v2"]


def test_the_first_served_generation_is_promoted_under_any_name() -> None:
    book = Book()
    book.make(generation="v2")
    book.build(generation="v2")
    live = book.live(generation="v2")
    assert book.state.reading(REF) is None
    book.do(e.InstanceServed(instance=live.uuid))
    assert book.state.reading(REF) == live
    assert book.state.promoted == {REF: "v2"}
    assert book.state.reading(REF, "") is None


@pytest.mark.parametrize("name", ["v 2", "-v2", "v2/..", "v..2", "x" * 65, ".."])
def test_names_of_generations_are_fit_for_files_and_urls(name: str) -> None:
    refused = Book().refused(e.InstanceCreated(ref=REF, reason=Reason.GENERATION, generation=name))
    assert refused == "malformed"


def test_an_instance_from_before_the_log_keeps_its_uuid() -> None:
    book = Book()
    event = e.InstanceImported(ref=REF, build=3, job="j", watermark=7, physical="p", fingerprint=FINGERPRINT)
    book.do(event)
    instance = book.now_of()
    assert instance.uuid == str(instance_id(PartitionRef.parse(REF), 3))
    assert book.state.reading(REF) == instance
    assert book.want("w") is WantState.SUCCESSFUL
    assert book.refused(event) == "not-allowed"


def test_only_the_job_that_works_on_an_instance_reports() -> None:
    book = Book()
    book.make()
    uuid = book.build(job="mine").uuid
    live = e.InstanceLive(instance=uuid, job="theirs", watermark=1, physical="p", counts=Counts())
    assert book.refused(live) == "other-job"
    assert book.refused(e.InstanceFailed(instance=uuid, job="theirs", error="")) == "other-job"
    miss = e.DependencyMissed(job="theirs", instances=(uuid,), want="w", missing=(UP,))
    assert book.refused(miss) == "other-job"
    book.live(job="mine")
    book.refresh(job="mine too")
    assert book.refused(e.RefreshFailed(instance=uuid, job="mine", error="")) == "other-job"
    again = e.InstanceRefreshed(instance=uuid, job="mine", watermark=200, counts=Counts())
    assert book.refused(again) == "other-job"


def test_windows_leave_no_gap_and_watermarks_never_go_back() -> None:
    book = Book()
    uuid = book.make().uuid
    backwards = e.InstanceBuilding(instance=uuid, job="j", floor=2, target=1, fingerprint={})
    assert book.refused(backwards) == "window"
    book.build()
    beyond = e.InstanceLive(instance=uuid, job="job", watermark=101, physical="p", counts=Counts())
    assert book.refused(beyond) == "window"
    book.live()
    for floor, target in ((101, 200), (50, 40)):
        gap = e.InstanceRefreshing(instance=uuid, job="r", floor=floor, target=target)
        assert book.refused(gap) == "window"
    book.refresh(target=200)
    for watermark in (99, 201):
        wrong = e.InstanceRefreshed(instance=uuid, job="refresh", watermark=watermark, counts=Counts())
        assert book.refused(wrong) == "window"


def test_inputs_are_instances_that_are_known() -> None:
    book = Book()
    up = book.built(UP)
    uuid = book.make().uuid
    for inputs, name in ((("unknown",), "unknown-instance"), ((uuid,), "cycle")):
        event = e.InstanceBuilding(instance=uuid, job="j", target=1, fingerprint={}, inputs=inputs)
        assert book.refused(event) == name
    assert book.build(inputs=(up.uuid, up.uuid)).inputs == (up.uuid,)
    book.live()
    newer = book.built(TOP)
    refreshing = e.InstanceRefreshing(instance=uuid, job="r", floor=0, target=200, inputs=(newer.uuid, up.uuid))
    book.do(refreshing)
    assert book.now_of().inputs == (up.uuid, newer.uuid)


def test_names_that_are_not_normal_are_refused() -> None:
    book = Book()
    for ref in ("Chunk", "Chunk@42/", "1@global", "Chunk@../x", "Chunk@global "):
        assert book.refused(e.InstanceCreated(ref=ref, reason=Reason.FIRST)) == "malformed"
        assert book.refused(e.WantCreated(want="w", refs=(REF, ref))) == "malformed"
    assert book.refused(e.InstanceCreated(ref=REF, reason=Reason.FIRST, generation="v 2")) == "malformed"
    assert book.refused(e.WantCreated(want="w", refs=())) == "malformed"
    book.want("w", UP, UP)
    assert book.state.wants["w"].refs == (UP,)
    assert book.refused(e.WantCreated(want="w", refs=(UP,))) == "taken"


def test_canonical_served_and_open_instances_are_not_collected() -> None:
    book = Book()
    one = book.built()
    book.do(e.InstanceServed(instance=one.uuid))
    book.want("done")
    book.do(e.InstanceTainted(instance=one.uuid))
    two = book.built()
    book.want("open", as_of=999)
    assert book.refused(e.Collected(instances=(one.uuid,))) == "in-use"
    assert book.refused(e.Collected(instances=(two.uuid,))) == "in-use"
    assert book.refused(e.Collected(wants=("done", "open"))) == "in-use"
    book.do(e.InstanceServed(instance=two.uuid))
    book.do(e.Collected(instances=(one.uuid,), wants=("done",)))
    assert one.uuid not in book.state.instances
    assert "done" not in book.state.wants
    assert book.refused(e.Collected(instances=(one.uuid,))) == "unknown-instance"
    assert book.refused(e.InstanceServed(instance=one.uuid)) == "unknown-instance"
    assert book.now_of().previous == one.uuid
