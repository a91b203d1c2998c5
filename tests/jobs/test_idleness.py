"""When all handlers of a process are idle."""

from __future__ import annotations

from instep.jobs.idleness import Idleness


def test_all_are_idle_when_each_has_found_nothing() -> None:
    idleness = Idleness(["Issue", "Note"])
    assert not idleness.found_nothing("Issue", idleness.began())
    assert idleness.found_nothing("Note", idleness.began())


def test_no_handler_is_idle_while_one_works() -> None:
    idleness = Idleness(["Issue", "Note"])
    idleness.found_nothing("Issue", idleness.began())
    with idleness.work("Issue"):
        assert not idleness.found_nothing("Note", idleness.began())


def test_a_look_before_the_last_work_ended_is_repeated() -> None:
    idleness = Idleness(["Issue", "Note"])
    early = idleness.began()
    with idleness.work("Issue"):
        pass
    assert not idleness.found_nothing("Note", early)
    assert not idleness.found_nothing("Issue", idleness.began())
    assert idleness.found_nothing("Note", idleness.began())
