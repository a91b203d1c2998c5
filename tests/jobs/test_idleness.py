"""When all workers of a process are idle."""

from __future__ import annotations

from instep.jobs.idleness import Idleness


def look(idleness: Idleness, name: str, *, worked: bool = False) -> int:
    began = idleness.start(name)
    idleness.stop(name, worked=worked)
    return began


def test_all_are_idle_when_each_has_found_nothing() -> None:
    idleness = Idleness(["Issue", "Note"])
    assert not idleness.found_nothing("Issue", look(idleness, "Issue"))
    assert idleness.found_nothing("Note", look(idleness, "Note"))


def test_no_worker_is_idle_while_one_works() -> None:
    idleness = Idleness(["Issue", "Note"])
    idleness.found_nothing("Issue", look(idleness, "Issue"))
    idleness.start("Issue")
    assert not idleness.found_nothing("Note", look(idleness, "Note"))


def test_a_look_before_the_last_work_ended_is_repeated() -> None:
    idleness = Idleness(["Issue", "Note"])
    early = look(idleness, "Note")
    look(idleness, "Issue", worked=True)
    assert not idleness.found_nothing("Note", early)
    assert not idleness.found_nothing("Issue", look(idleness, "Issue"))
    assert idleness.found_nothing("Note", look(idleness, "Note"))


def test_a_worker_that_came_has_to_look_and_one_that_has_ended_need_not() -> None:
    idleness = Idleness(["Issue"])
    idleness.add("Note")
    assert not idleness.found_nothing("Issue", look(idleness, "Issue"))
    idleness.forget("Note")
    assert idleness.found_nothing("Issue", look(idleness, "Issue"))
