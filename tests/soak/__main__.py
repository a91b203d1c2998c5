"""`python -m tests.soak`: the soak for as long as wanted, and a table of what happened.

python -m tests.soak --ledger sqlite|postgres|mariadb|all --seconds 600 --documents 20000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.chaos import soak
from tests.soak.ledgers import LEDGERS, server_of, url_of
from tests.soak.site import Site
from tests.soak.verdict import Verdict

#: What ten minutes of bad times must have seen on each ledger, at least.
TEN_MINUTES = {"kills": 150, "takeovers": 50}


def too_little(verdict: Verdict, seconds: float) -> list[str]:
    """Longer soaks must have been hard enough."""
    if seconds < 600:
        return []
    seen = {name: getattr(verdict.numbers, name) for name in TEN_MINUTES}
    return [f"only {seen[name]} {name}" for name, least in TEN_MINUTES.items() if seen[name] < least * seconds / 600]


def one(ledger: str, *, seconds: float, documents: int, seed: int, verbose: bool) -> Verdict:
    began = time.monotonic()

    def report(line: str) -> None:
        if verbose:
            print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    with tempfile.TemporaryDirectory(prefix="instep-soak-") as folder:
        site = Site(Path(folder), url_of(ledger, Path(folder)), seed)
        return soak(site, seconds=seconds, documents=documents, seed=seed, ledger=server_of(ledger), report=report)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Kill and stop servers for a while.")
    parser.add_argument("--ledger", choices=[*LEDGERS, "all"], default="all")
    parser.add_argument("--seconds", type=float, default=600, help="of bad times, on each ledger")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=None, help="of what is written and of what is done to the servers")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    failed = False
    for ledger in LEDGERS if options.ledger == "all" else [options.ledger]:
        print(f"{ledger}, seed {seed}", flush=True)
        verdict = one(ledger, seconds=options.seconds, documents=options.documents, seed=seed, verbose=options.verbose)
        print(verdict.table())
        problems = [*verdict.problems, *too_little(verdict, options.seconds)]
        for problem in problems[:50]:
            print(f"PROBLEM: {problem}")
        failed |= bool(problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
