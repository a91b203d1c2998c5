"""Tries mutants and says of each whether a test has noticed it.

Ends with 1 when fewer than 95 % were noticed, and with 2 when one could not be tried: the text that it replaces is not
there any more, or the test that fails does so without it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import astuple, replace
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Mutant, Stale
from tests.mutants.slips import ALL
from tests.mutants.trying import WITHOUT, Copy, Limits, Trial, Verdict, copied, is_test

ROOT: Final = Path(__file__).resolve().parents[2]
NEEDED: Final = 0.95
#: Which test noticed each, by name, when it was last remembered: it is run first.
FIRST: Final = Path(__file__).with_name("noticed.json")
#: One that hangs is noticed by that. The tests of most take a twentieth of it.
_SECONDS: Final = 300.0
#: More than Spark and the largest server take. One that eats all memory is noticed by that.
_BYTES: Final = 4 << 30


def main(arguments: Sequence[str] | None = None, mutants: Sequence[Mutant] = ALL) -> int:
    asked = _asked(arguments)
    chosen = [
        each for each in mutants if not asked.only or any(word in f"{each.path} {each.breaks}" for word in asked.only)
    ]
    if not chosen:
        print(f"no mutant is named {' or '.join(asked.only)}: see --list")
        return 2
    if asked.list:
        print(*(f"{each.path}: {each.breaks}" for each in chosen), f"{len(chosen)} mutants", sep="\n")
        return 0
    began = time.monotonic()
    known = _kept(asked.resume)
    stale = {each: said for each in chosen if (said := _stale(each))}
    for said in stale.values():
        print(f"stale     {said}", flush=True)
    before = {each: known[each] for each in chosen if each in known}
    there = [each for each in chosen if each not in stale and each not in known]
    with ExitStack() as stack:
        limits = Limits(asked.seconds, _BYTES)
        copies = [stack.enter_context(copied(ROOT)) for _ in range(min(asked.workers, max(1, len(there))))]
        trials = _checked({**before, **_tried(there, copies, limits, asked.resume)}, copies[0], limits)
    if asked.remember:
        _remember(trials, mutants)
    return _said(trials, len(stale), time.monotonic() - began)


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="those with it in their file or their name"
    )
    parser.add_argument("--list", action="store_true", help="name them, and try none")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="so many at once")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="the time that the tests of one may take")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep there what is noticed, and try only what was not yet"
    )
    parser.add_argument(
        "--remember", action="store_true", help=f"write into {FIRST.name} which test noticed each: it is run first"
    )
    return parser.parse_args(arguments)


def _kept(resume: Path | None) -> dict[Mutant, Trial]:
    """What earlier runs have noticed; another text or other tests make another mutant."""
    lines = resume.read_text(encoding="utf-8").splitlines() if resume and resume.exists() else []
    return {
        Mutant(breaks, file, text, by, tuple(tests)): Trial(Verdict.NOTICED, noticed, seconds)
        for breaks, file, text, by, tests, noticed, seconds in map(json.loads, lines)
    }


def _keep(resume: Path, mutant: Mutant, trial: Trial) -> None:
    with resume.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps([*astuple(mutant), trial.by, trial.seconds])}\n")


def _first() -> dict[str, str]:
    return json.loads(FIRST.read_text(encoding="utf-8")) if FIRST.exists() else {}


def _remember(trials: dict[Mutant, Trial], mutants: Sequence[Mutant]) -> None:
    """What is not tried now stays; what is no mutant any more goes."""
    noticed = {
        each.breaks: trial.by
        for each, trial in trials.items()
        if trial.verdict is Verdict.NOTICED and is_test(trial.by)
    }
    known = _first() | noticed
    kept = {each.breaks: known[each.breaks] for each in mutants if each.breaks in known}
    FIRST.write_text(f"{json.dumps(kept, indent=1)}\n", encoding="utf-8")


def _stale(mutant: Mutant) -> str:
    try:
        mutant.demand_text(ROOT)
    except Stale as error:
        return str(error)
    return ""


def _tried(
    mutants: Sequence[Mutant], copies: Sequence[Copy], limits: Limits, resume: Path | None
) -> dict[Mutant, Trial]:
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    first = _first()

    def attempt(mutant: Mutant) -> Trial:
        copy = free.get()
        try:
            return copy.attempt(mutant, limits, first.get(mutant.breaks, ""))
        finally:
            free.put(copy)

    trials = {}
    with ThreadPoolExecutor(max(1, len(copies))) as pool:
        attempts = {pool.submit(attempt, each): each for each in mutants}
        try:
            for done in as_completed(attempts):
                mutant, trial = attempts[done], done.result()
                trials[mutant] = trial
                if resume and trial.verdict is Verdict.NOTICED:
                    _keep(resume, mutant, trial)
                print(
                    f"{trial.verdict.value:9} {trial.seconds:5.1f} s  {mutant.path}: {mutant.breaks} [{trial.by}]",
                    flush=True,
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.close()
            raise
    return trials


def _checked(trials: dict[Mutant, Trial], copy: Copy, limits: Limits) -> dict[Mutant, Trial]:
    """A test that fails without the slip, too, has noticed nothing."""
    tests = sorted({each.by for each in trials.values() if each.verdict is Verdict.NOTICED and is_test(each.by)})
    broken = set(copy.failing(tests, limits)) if tests else set()
    for mutant, trial in trials.items():
        if trial.by in broken:
            trials[mutant] = replace(trial, verdict=Verdict.BROKEN, by=f"{WITHOUT}{trial.by}")
            print(f"{Verdict.BROKEN.value:16}{mutant.path}: {mutant.breaks} [{trials[mutant].by}]", flush=True)
    return trials


def _said(trials: dict[Mutant, Trial], stale: int, seconds: float) -> int:
    found = Counter(each.verdict for each in trials.values())
    share = found[Verdict.NOTICED] / max(1, found[Verdict.NOTICED] + found[Verdict.UNSEEN])
    print(
        f"noticed {found[Verdict.NOTICED]} of {found[Verdict.NOTICED] + found[Verdict.UNSEEN]} ({share:.1%}),"
        f" {stale + found[Verdict.BROKEN]} could not be tried; {seconds / 60:.1f} minutes"
    )
    for mutant, trial in trials.items():
        if trial.verdict is Verdict.UNSEEN:
            print(f"no test noticed  {mutant.path}: {mutant.breaks}")
    if stale or found[Verdict.BROKEN]:
        return 2
    return 0 if share >= NEEDED else 1
