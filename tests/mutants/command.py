"""Tries mutants and says of each whether a test has noticed it.

Ends with 1 when fewer than 95 % were noticed, and with 2 when one could not be tried: the text that it replaces is not
there any more, or its tests fail without it.
"""

from __future__ import annotations

import argparse
import os
import queue
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Mutant, Stale
from tests.mutants.slips import ALL
from tests.mutants.trying import Copy, Trial, Verdict, copied

ROOT: Final = Path(__file__).resolve().parents[2]
NEEDED: Final = 0.95
#: One that hangs is noticed by that. The tests of most take a twentieth of it.
_SECONDS: Final = 300.0
#: For the tests of all of them together.
_ALL_SECONDS: Final = 3_600.0


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
    stale = {each: said for each in chosen if (said := _stale(each))}
    for said in stale.values():
        print(f"stale     {said}", flush=True)
    there = [each for each in chosen if each not in stale]
    with ExitStack() as stack:
        copies = [stack.enter_context(copied(ROOT)) for _ in range(min(asked.workers, len(there)))]
        if there and not _pass(copies[0], there):
            return 2
        trials = _tried(there, copies, asked.seconds)
    return _said(trials, len(stale), time.monotonic() - began)


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="those with it in their file or their name"
    )
    parser.add_argument("--list", action="store_true", help="name them, and try none")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="so many at once")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="the time that the tests of one may take")
    return parser.parse_args(arguments)


def _is_chosen(mutant: Mutant, words: Sequence[str]) -> bool:
    return not words or any(word in f"{mutant.path} {mutant.breaks}" for word in words)


def _stale(mutant: Mutant) -> str:
    try:
        mutant.demand_text(ROOT)
    except Stale as error:
        return str(error)
    return ""


def _pass(copy: Copy, mutants: Sequence[Mutant]) -> bool:
    """Whether all tests pass while nothing is wrong: else what they notice says nothing."""
    tests = sorted({test for each in mutants for test in each.tests})
    print(f"{len(mutants)} mutants; first their tests without any", flush=True)
    ran = copy.run(tests, _ALL_SECONDS)
    if ran.code:
        print(ran.said)
    return ran.code == 0


def _tried(mutants: Sequence[Mutant], copies: Sequence[Copy], seconds: float) -> dict[Mutant, Trial]:
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def attempt(mutant: Mutant) -> Trial:
        copy = free.get()
        try:
            return copy.attempt(mutant, seconds)
        finally:
            free.put(copy)

    trials = {}
    with ThreadPoolExecutor(max(1, len(copies))) as pool:
        attempts = {pool.submit(attempt, each): each for each in mutants}
        for done in as_completed(attempts):
            mutant, trial = attempts[done], done.result()
            trials[mutant] = trial
            print(
                f"{trial.verdict.value:9} {trial.seconds:5.1f} s  {mutant.path}: {mutant.breaks} [{trial.by}]",
                flush=True,
            )
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
            print(f"nobody noticed  {mutant.path}: {mutant.breaks}")
    if stale or found[Verdict.BROKEN]:
        return 2
    return 0 if share >= NEEDED else 1
