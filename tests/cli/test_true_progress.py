"""What is printed of a run is true at that moment."""

from __future__ import annotations

import io

from rich.console import Console

from instep.cli.log_progress import Lines
from instep.domain.jobs import Phase
from instep.domain.speed import seconds_left
from instep.domain.waves import Stage
from instep.telemetry.bar_progress import Bars
from instep.telemetry.texts import pace_text


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def told(*, done: int, total: int, well: bool = True) -> list[str]:
    stream, clock = io.StringIO(), Clock()
    lines = Lines(stream, clock)
    lines.begin("Document", total, "document")
    clock.now = 12.0
    lines.advance("Document", done)
    clock.now = 34.0
    lines.end("Document", well=well)
    return stream.getvalue().splitlines()


def test_a_failed_entity_is_shown_as_not_done() -> None:
    assert told(done=10, total=10)[-1] == "Document: done in 34 s"
    assert told(done=10, total=10, well=False)[-1] == "Document: not done in 34 s"
    assert told(done=4, total=10, well=False)[-1] == "Document: not done, 4 of 10 documents in 34 s"


def test_retries_never_exceed_the_total() -> None:
    assert not any(" of 1 document" in line for line in told(done=2, total=1)[1:])


def test_no_time_is_left_when_all_is_read_and_not_done_yet() -> None:
    assert seconds_left(10, 10, 5.0) is None
    assert seconds_left(10, 11, 5.0) is None
    assert seconds_left(10, 5, 5.0) == 1.0
    assert "left" not in pace_text(5.0, seconds_left(10, 10, 5.0))


def drawn(*, well: bool) -> tuple[str, str]:
    """What a bar looks like when all is read, and when the work has ended."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with Bars(console) as bars:
        bars.begin("Document", 10, "document")
        bars.advance("Document", 10)
        bars._bars.refresh()
        read = stream.getvalue()
        bars.end("Document", well=well)
    return read, stream.getvalue()[len(read) :]


def test_a_bar_has_a_tick_when_the_work_has_ended_well_and_not_when_all_is_read() -> None:
    read, ended = drawn(well=True)
    assert "10/10" in read
    assert "✓" not in read
    assert "✓" in ended
    _, ended = drawn(well=False)
    assert "✓" not in ended
    assert "not done" in ended


def test_a_look_after_the_end_leaves_the_bar_as_it_ended() -> None:
    stream = io.StringIO()
    with Bars(Console(file=stream, force_terminal=True, width=120)) as bars:
        bars.listing("Document", 3)
        bars.begin("Document", 10, "document")
        bars.end("Document")
        ended = len(stream.getvalue())
        bars.listing("Document", 12_000)
    assert "12,000 found" not in stream.getvalue()[ended:]


def test_after_the_last_wave_a_bar_says_what_goes_on_and_no_pace_until_work_comes_again() -> None:
    stream = io.StringIO()
    with Bars(Console(file=stream, force_terminal=True, width=120)) as bars:

        def seen() -> str:
            before = len(stream.getvalue())
            bars._bars.refresh()
            return stream.getvalue()[before:]

        bars.begin("Document", 10, "document")
        bars.advance("Document", 5)
        bars.advance("Document", 5)
        for phase in (Phase.INDEXES, Phase.CHECKS, Phase.PROMOTION):
            bars.phase("Document", phase)
            drawn = seen()
            assert phase.words in drawn
            assert "/s" not in drawn
        bars.advance("Document", 1)
        assert Phase.PROMOTION.words not in seen()


def test_what_takes_under_a_second_is_not_said_to_take_none() -> None:
    assert pace_text(1_156.0, seconds_left(3_002, 2_997, 1_156.0)) == "1,156/s, under 1 s left"


def test_progress_tells_the_stage_of_spark_and_in_the_end_how_many_there_were() -> None:
    log, clock, terminal = io.StringIO(), Clock(), io.StringIO()
    lines = Lines(log, clock)
    with Bars(Console(file=terminal, force_terminal=True, width=120)) as bars:
        for each in (lines, bars):
            each.begin("Document", 10, "document")
            each.stage("Document", Stage(0, 4, 4))
            each.stage("Document", Stage(1, 1, 4))
            each.stage("Document", Stage(1, 3, 4))
        bars._bars.refresh()
        running = terminal.getvalue()
        clock.now = 12.0
        for each in (lines, bars):
            each.advance("Document", 10)
            each.end("Document")
    assert "Spark stage 1: 3 of 4 tasks" in running
    assert "Spark: 2 stages, 8 tasks" in terminal.getvalue()[len(running) :]
    assert log.getvalue().splitlines()[1:] == [
        "Document: 10 of 10 documents, 0.83/s, Spark stage 1: 3 of 4 tasks",
        "Document: done in 12 s (Spark: 2 stages, 8 tasks)",
    ]
