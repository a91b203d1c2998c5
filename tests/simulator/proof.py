"""Tells whether the dearest tests of simulator and ledger must run: what they prove has changed since they passed.

`proved.txt`, which is committed, holds the digest of the files with which all of them passed. `make proof` runs them
and writes it; `make test` runs them whenever it differs, `make soak` always.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PROVED: Final = Path(__file__).parent / "proved.txt"
#: What is simulated, and what simulates it; the ledger, and its contract.
FOLDERS: Final = (
    *("src/instep/domain", "src/instep/jobs", "src/instep/ledger"),
    *("tests/contracts/ledger", "tests/ledger", "tests/simulator"),
)
#: Where they are.
TESTS: Final = ("tests/simulator", "tests/ledger")


def files(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.py"))


def digest(root: Path = ROOT) -> str:
    """Of the names and contents of all that the tests depend on; the same on every machine."""
    total = blake2b(digest_size=16)
    for file in files(root):
        content = file.read_bytes()
        total.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def is_proved(root: Path = ROOT, proved: Path = PROVED) -> bool:
    return proved.is_file() and proved.read_text(encoding="utf-8").strip() == digest(root)


def main() -> int:
    """Run them all, and note with which files they passed."""
    before = digest()
    code = pytest.main(["-q", "-m", "proof and not long", "--prove", *TESTS, *sys.argv[1:]])
    if code == pytest.ExitCode.OK and digest() == before:
        PROVED.write_text(f"{before}\n", encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
