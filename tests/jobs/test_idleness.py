"""When all handlers of a process are idle."""

from __future__ import annotations

from instep.jobs.idleness import Idleness


def test_all_are_idle_when_each_has_found_nothing() -> None:
    idleness = Idleness(["Issue", "Note"])
    assert not idleness.found_nothing("Issue", idleness.began())
    assert idleness.found_nothing("Note", idleness.began())


def test_nobody_is_idle_while_one_works() -> None:
    idleness = Idleness(["Issue", "Note"])
    idleness.found_nothing("Issue", idleness.began())
    with idleness.work("Issue"):
        assert not idleness.found_nothing("Note", idleness.began())


def test_who_looked_before_the_last_one_was_done_looks_again() -> None:
    idleness = Idleness(["Issue", "Note"])
    early = idleness.began()
    with idleness.work("Issue"):
        pass
    assert not idleness.found_nothing("Note", early)
    assert not idleness.found_nothing("Issue", idleness.began())
    assert idleness.found_nothing("Note", idleness.began())
