"""Tells whether the dearest tests of a room must run: what they prove has changed since they last passed.

`proved.txt`, which is committed, holds for each room the digest of the files with which all of them passed. `make
proof` runs them and writes it; `make test` runs them whenever it differs, `make soak` always.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[1]
PROVED: Final = Path(__file__).parent / "proved.txt"


class Room(NamedTuple):
    """Where its tests are, and on which files what they say depends: the product's, and what tests them."""

    tests: tuple[str, ...]
    depends: tuple[str, ...]


ROOMS: Final = {
    # Simulated, and what simulates it; the ledger, and its contract.
    "ledger": Room(
        ("tests/simulator", "tests/ledger"),
        (
            *("src/instep/domain", "src/instep/jobs", "src/instep/ledger"),
            *("tests/contracts/ledger", "tests/ledger", "tests/simulator"),
        ),
    ),
    "targets": Room(
        ("tests/doubles", "tests/targets"),
        (
            *("src/instep/clickhouse", "src/instep/domain", "src/instep/postgres", "src/instep/servers"),
            *("src/instep/arrow_types.py", "src/instep/errors.py"),
            *("src/instep/targets", "tests/contracts", "tests/doubles", "tests/servers", "tests/targets"),
            # A newer library of a store may do otherwise.
            "requirements.lock",
        ),
    ),
    # Tables that Spark reads.
    "sources": Room(
        ("tests/sources",),
        (
            *("src/instep/clickhouse", "src/instep/domain", "src/instep/pipeline/engine", "src/instep/sources"),
            *("src/instep/arrow_types.py", "src/instep/errors.py"),
            *("tests/contracts", "tests/servers", "tests/sources", "requirements.lock"),
        ),
    ),
    # Spark through Connect.
    "engine": Room(
        ("tests/engine",),
        (
            *("src/instep/pipeline", "src/instep/domain", "src/instep/jobs"),
            *("src/instep/error_transport.py", "src/instep/errors.py", "src/instep/own_code.py"),
            *("tests/contracts", "tests/engine", "requirements.lock"),
        ),
    ),
    # Crashes between any two writes, stories on a second target or bus, and pending queues: of all that there is.
    "stories": Room(
        ("tests/e2e", "tests/jobs", "tests/queues"),
        (
            *("src/instep", "tests/contracts", "tests/doubles", "tests/e2e", "tests/jobs", "tests/queues"),
            *("examples/demo.py", "tests/servers", "requirements.lock"),
        ),
    ),
}


def room_of(path: str) -> str:
    """Of a test file in `tests`, by its path there."""
    return next(name for name, room in ROOMS.items() if f"tests/{path}".startswith(room.tests))


def files(name: str, root: Path = ROOT) -> Iterator[Path]:
    for each in ROOMS[name].depends:
        place = root / each
        yield from [place] if place.is_file() else sorted(place.rglob("*.py"))


def digest(name: str, root: Path = ROOT) -> str:
    """Of the names and contents of all that the tests of a room depend on; the same on every machine."""
    total = blake2b(digest_size=16)
    for file in files(name, root):
        content = file.read_bytes()
        total.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def proved(file: Path = PROVED) -> dict[str, str]:
    """The digest of each room with which its tests have passed."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return dict(line.split() for line in lines)


def is_proved(name: str, root: Path = ROOT, file: Path = PROVED) -> bool:
    return proved(file).get(name) == digest(name, root)


def main() -> int:
    """Run those of the rooms that have changed, and note with which files they passed."""
    worst = 0
    for name, room in ROOMS.items():
        before = digest(name)
        if proved().get(name) == before:
            print(f"{name}: nothing has changed since its tests passed")
            continue
        code = int(pytest.main(["-q", "-m", "proof and not long", "--prove", *room.tests, *sys.argv[1:]]))
        worst = max(worst, code)
        if not code and digest(name) == before:
            noted = {**proved(), name: before}
            PROVED.write_text("".join(f"{each} {noted[each]}\n" for each in sorted(noted)), encoding="utf-8")
    return worst


if __name__ == "__main__":
    sys.exit(main())
