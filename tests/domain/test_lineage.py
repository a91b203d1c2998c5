"""Lineage: histories, graphs, what is in doubt after a taint, and what may be forgotten."""

from __future__ import annotations

from instep.domain import events as e
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.lineage import Edge, Link, collectable, collectable_wants, graph, history, made_from
from tests.domain.book import REF, TOP, UP, Book

S = InstanceState


def chain() -> tuple[Book, Instance, Instance, Instance]:
    """Documents, chunks made from them, answers made from those; all Live."""
    book = Book()
    up = book.built(UP)
    book.make(REF)
    book.build(REF, inputs=(up.uuid,))
    middle = book.live(REF)
    book.make(TOP)
    book.build(TOP, inputs=(middle.uuid,))
    return book, up, middle, book.live(TOP)


def again(book: Book, ref: str = REF) -> Instance:
    """Taint, build, serve: a new instance in the place of the old one."""
    book.do(e.InstanceTainted(instance=book.now_of(ref).uuid))
    new = book.built(ref)
    book.do(e.InstanceServed(instance=new.uuid))
    return new


def test_a_history_has_every_instance_the_newest_first() -> None:
    book = Book()
    one = book.built()
    book.built(UP)
    two = again(book)
    book.do(e.InstanceExpired(instance=two.uuid))
    other = book.make(generation="v2")
    told = history(book.state, REF)
    assert [each.uuid for each in told][:2] == [other.uuid, book.now_of().uuid]
    assert [each.state for each in told] == [S.MISSING, S.MISSING, S.EXPIRED, S.TAINTED]
    assert [each.uuid for each in history(book.state, REF, "v2")] == [other.uuid]
    assert told[-1].uuid == one.uuid
    assert history(book.state, TOP) == []


def test_the_canonical_instance_and_its_state_at_a_time() -> None:
    book = Book()
    times: list[tuple[int, str, S]] = []

    def note() -> None:
        instance = book.now_of()
        times.append((book.now - 1, instance.uuid, instance.state))

    book.make()
    note()
    book.build()
    note()
    one = book.live()
    note()
    book.do(e.InstanceTainted(instance=one.uuid))
    note()
    book.build(job="second")
    note()
    two = book.live(job="second")
    book.refresh()
    note()
    for time, uuid, state in times:
        then = next(each for each in history(book.state, REF) if each.created_at <= time)
        assert (then.uuid, then.state_at(time)) == (uuid, state)
    assert two.state_at(0) is None
    assert book.state.instances[one.uuid].state_at(book.now) is S.TAINTED


def test_a_graph_goes_to_the_sources_with_the_instance_before_each() -> None:
    book, up, middle, top = chain()
    found = graph(book.state, top.uuid)
    assert [each.uuid for each in found.nodes] == [top.uuid, middle.uuid, up.uuid]
    assert found.edges == (Edge(top.uuid, middle.uuid, Link.INPUT), Edge(middle.uuid, up.uuid, Link.INPUT))
    new = again(book)
    found = graph(book.state, new.uuid)
    assert [(each.uuid, each.state) for each in found.nodes] == [(new.uuid, S.LIVE), (middle.uuid, S.TAINTED)]
    assert found.edges == (Edge(new.uuid, middle.uuid, Link.PREVIOUS),)


def test_a_graph_as_of_a_time_has_the_states_and_inputs_of_then() -> None:
    book, up, middle, _ = chain()
    then = book.now
    again(book, UP)
    found = graph(book.state, middle.uuid, at=then - 1)
    assert [(each.uuid, each.state) for each in found.nodes] == [(middle.uuid, S.LIVE), (up.uuid, S.LIVE)]
    found = graph(book.state, middle.uuid)
    assert found.nodes[1].state is S.TAINTED
    assert middle.started_at is not None
    assert graph(book.state, middle.uuid, at=middle.started_at - 1).edges == ()


def test_a_link_to_a_collected_instance_ends_in_a_marked_node() -> None:
    book = Book()
    one = book.built()
    new = again(book)
    book.do(e.Collected(instances=(one.uuid,)))
    node = graph(book.state, new.uuid).nodes[1]
    assert (node.uuid, node.instance, node.state) == (one.uuid, None, None)
    assert graph(book.state, "unknown").nodes[0].instance is None


def test_a_taint_throws_doubt_on_all_that_was_made_from_it() -> None:
    book, up, middle, top = chain()
    assert [each.uuid for each in made_from(book.state, up.uuid)] == [middle.uuid, top.uuid]
    assert made_from(book.state, top.uuid) == []


def test_old_instances_go_but_not_the_canonical_and_the_one_before_it() -> None:
    book = Book()
    book.built()
    uuids = [book.now_of().uuid] + [again(book).uuid for _ in range(4)]
    assert collectable(book.state, book.now, keep=0) == uuids[:3]
    assert collectable(book.state, book.now, keep=book.now) == []
    left = book.state.instances[uuids[1]].ended_at
    assert left is not None
    # When the second was left is just not long ago, or just is; then it stays for the third, which follows it.
    assert collectable(book.state, book.now, keep=book.now - left + 1) == []
    assert collectable(book.state, book.now, keep=book.now - left) == uuids[:1]


def test_served_used_and_awaited_instances_are_kept() -> None:
    book = Book()
    first = book.built()
    book.do(e.InstanceServed(instance=first.uuid))
    uuids = [first.uuid]
    for _ in range(3):
        book.do(e.InstanceCreated(ref=REF, reason=Reason.REBUILD))
        uuids.append(book.built().uuid)
    assert collectable(book.state, book.now, 0) == [uuids[1]]
    assert collectable(book.state, book.now, 0, in_use=[uuids[1]]) == []
    book.do(e.InstanceServed(instance=uuids[3]))
    assert collectable(book.state, book.now, 0) == uuids[:2]


def test_inputs_of_kept_instances_are_kept_transitively() -> None:
    book, up, middle, top = chain()
    for ref in (UP, REF):
        for _ in range(3):
            again(book, ref)
    gone = collectable(book.state, book.now, 0)
    assert not {up.uuid, middle.uuid, top.uuid} & set(gone)
    assert len(gone) == 2
    book.do(e.Collected(instances=tuple(gone)))
    assert collectable(book.state, book.now, 0) == []


def test_wants_go_when_they_have_ended_but_not_the_one_that_an_open_want_waits_for() -> None:
    book = Book()
    book.make()
    book.want("w")
    book.build()
    book.miss("up", UP)
    book.do(e.WantCanceled(want="up"))
    book.want("open")
    ended = book.state.wants["w"].ended_at
    assert ended is not None
    assert collectable_wants(book.state, ended, keep=1) == []
    assert collectable_wants(book.state, book.now, keep=0) == ["w", "up"]
