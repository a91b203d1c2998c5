"""The benchmark of the main job: `python -m bench`. All sides run in turn on the same corpus, on this machine.

Wall seconds of the whole process, start included. For each size: an initial run from nothing, a run that finds
nothing changed, and a run after 1 % of the documents changed (and 0.1 % went, 0.1 % came). After each case the
index of each side is compared with an independent computation.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import corpus, measure, report, truth
from bench.environment import EXTRAS, WORK, describe_machine, virtual_environment
from bench.report import Cell
from bench.sides import Bare, Instep, Side, WarmSpark

#: Share of the rows that the full-text index must cover at the end of a case.
LEAST_INDEXED = 0.9

SIZES = (2_000, 20_000)
LARGE = 100_000
CASES = ("initial", "nothing", "change")
SIDES = ("inline", "spark", "warm", "bare", "bare-no-fts")
WARM_UP_DOCUMENTS = 200

#: So that 2,000 documents can be given the change that is 1 % of 20,000.
SAME_CHANGE = {"changed": 200, "deleted": 20, "added": 20}


class Bench:
    """One size: its corpus, its sides, and the cells that their runs fill."""

    def __init__(self, documents: int, *, repeat: int, bin: Path, sides: Sequence[str]) -> None:
        self.documents = documents
        self.cells: list[Cell] = []
        self._repeat = repeat
        self._corpus = WORK / "corpus" / f"documents-{documents}"
        self._mutations = 0
        state = WORK / "state" / f"documents-{documents}"
        warm_up = WORK / "corpus" / "warm-up"
        known: dict[str, Callable[[], Side]] = {
            "bare": lambda: Bare(bin, state / "bare", self._corpus),
            "bare-no-fts": lambda: Bare(bin, state / "bare-no-fts", self._corpus, fts=False),
            "inline": lambda: Instep("inline", bin, state / "inline", self._corpus),
            "spark": lambda: Instep("spark", bin, state / "spark", self._corpus),
            "warm": lambda: WarmSpark(bin, state / "warm", self._corpus, warm_up),
        }
        self._sides = [known[name]() for name in known if name in sides]
        if "warm" in sides:
            _new_corpus(warm_up, WARM_UP_DOCUMENTS)

    def run(self, cases: Sequence[str]) -> None:
        say(f"{self.documents:,} documents: writing the corpus")
        _new_corpus(self._corpus, self.documents)
        self._mutations = 0
        broken = self._initial(self._repeat if "initial" in cases else 1)
        self._sides = [side for side in self._sides if side.name not in broken and not isinstance(side, WarmSpark)]
        if "nothing" in cases:
            self._case("nothing", before=lambda: None)
        if "change" in cases:
            self._case("change", before=self._mutate)
        if "change" in cases and self.documents == SIZES[0]:
            self._case("same change", before=lambda: self._mutate(**SAME_CHANGE))

    def _initial(self, repeat: int) -> set[str]:
        """Every repeat starts from nothing; the state of the last one is what the other cases go on from."""
        cells = self._cells("initial")
        for _ in range(repeat):
            for side, cell in self._turn(cells):
                side.fresh()
                _measure(side, cell)
        self._check(cells)
        return {cell.side for cell in cells if cell.error}

    def _case(self, case: str, *, before: Callable[[], None]) -> None:
        cells = self._cells(case)
        for _ in range(self._repeat):
            before()
            for side, cell in self._turn(cells):
                _measure(side, cell)
        self._check(cells)

    def _cells(self, case: str) -> list[Cell]:
        cells = [Cell(self.documents, case, side.name) for side in self._sides]
        self.cells += cells
        return cells

    def _turn(self, cells: Sequence[Cell]) -> Iterator[tuple[Side, Cell]]:
        """Each side once, those that failed before left out."""
        for side, cell in zip(self._sides, cells, strict=True):
            if not cell.error:
                say(f"{self.documents:,} documents, {cell.case}: {cell.side}")
                yield side, cell

    def _mutate(self, **counts: int) -> None:
        self._mutations += 1
        corpus.mutate(self._corpus, seed=self._mutations, **counts)
        os.sync()

    def _check(self, cells: Sequence[Cell]) -> None:
        want = truth.expected(self._corpus)
        for side, cell in zip(self._sides, cells, strict=True):
            if cell.error:
                continue
            try:
                verdict = truth.compare(want, truth.found(side.dataset()))
                indexed = truth.indexed(side.dataset())
            except measure.Failed as problem:
                cell.error = str(problem)
            else:
                cell.truth = "holds" if verdict.holds else str(verdict)
                cell.error = "" if verdict.holds else f"WRONG: {verdict}"
                if indexed < LEAST_INDEXED:
                    cell.error = f"WRONG: the full-text index covers {indexed:.0%} of the rows"


def _measure(side: Side, cell: Cell) -> None:
    try:
        done = side.run()
    except measure.Failed as problem:
        cell.error = f"failed: {str(problem).splitlines()[-1]}"
        say(str(problem))
    else:
        cell.seconds.append(done.seconds)
        cell.cpu.append(done.cpu)
        cell.peaks.append(done.peak_rss)


def _new_corpus(folder: Path, documents: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    corpus.generate(folder, documents)
    os.sync()


def help_seconds(bin: Path, repeat: int) -> float | None:
    try:
        return statistics.median(measure.run([bin / "instep", "--help"], folder=WORK).seconds for _ in range(repeat))
    except (measure.Failed, FileNotFoundError) as problem:
        say(str(problem))
        return None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    options = _options()
    machine = describe_machine()
    say(" · ".join(f"{name} {value}" for name, value in machine.items()))
    bin = virtual_environment(*EXTRAS["spark" if {"spark", "warm"} & set(options.sides) else "inline"])
    help_time = help_seconds(bin, options.repeat)
    cells: list[Cell] = []
    for documents in options.sizes:
        bench = Bench(documents, repeat=options.repeat, bin=bin, sides=options.sides)
        bench.run(options.only)
        cells += bench.cells
    found = report.goals(cells, help_time)
    _write(machine, cells, found, repeat=options.repeat)
    print(" · ".join(f"{name} {value}" for name, value in machine.items()), end="\n\n")
    report.show(f"Wall seconds of the whole process, median of {options.repeat}", *report.result_rows(cells))
    report.show("Goals", *report.goal_rows(found))
    print(f"RSS is sampled every {measure.SAMPLE_SECONDS} s over the process tree; shared pages count in each process.")
    sys.exit(1 if any(cell.error for cell in cells) else 0)


def _write(machine: dict[str, str], cells: Sequence[Cell], found: Sequence[report.Goal], *, repeat: int) -> None:
    results = {
        "machine": machine,
        "repeat": repeat,
        "cells": [dataclasses.asdict(cell) for cell in cells],
        "goals": [{**dataclasses.asdict(goal), "verdict": goal.verdict} for goal in found],
    }
    (WORK / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--sizes", type=_numbers, default=list(SIZES), help="documents, such as 2000,20000")
    parser.add_argument("--large", action="store_true", help=f"add {LARGE:,} documents")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each case; the median counts")
    parser.add_argument("--only", type=_names(CASES), default=list(CASES), help="cases: " + ",".join(CASES))
    parser.add_argument("--sides", type=_names(SIDES), default=list(SIDES), help="sides: " + ",".join(SIDES))
    options = parser.parse_args()
    if options.large:
        options.sizes.append(LARGE)
    return options


def _numbers(text: str) -> list[int]:
    return [int(part.replace("_", "")) for part in text.split(",")]


def _names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(allowed)}")
        return names

    return parse


if __name__ == "__main__":
    main()
