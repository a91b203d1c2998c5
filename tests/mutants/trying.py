"""Runs tests on a copy of the tree, with a slip in it or without: the checkout stays as it is."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Mutant

#: What tests read besides themselves and the product.
_COPIED: Final = ("src", "tests", "docs", "examples", "pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
#: `proved.txt` says which tests need not run: here all do.
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", ".hypothesis", ".instep", "proved.txt")

#: Pytest's exit codes.
_PASSED, _FAILED = 0, 1
_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)

#: Examples are made up in the same way each time, and what fails is not made smaller. Plugins are loaded before pytest.
_OPTIONS: Final = (
    *("-q", "--tb=short", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("--hypothesis-profile=hasty", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


#: Said of what notices nothing: it fails whether there is a slip or not.
WITHOUT: Final = "without the slip, too: "


class Verdict(Enum):
    NOTICED = "noticed"
    UNSEEN = "UNSEEN"
    #: Nothing was tried: the tests are not there, or what was made is no program.
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Trial:
    """`by`: the test that noticed it, or what else there is to say."""

    verdict: Verdict
    by: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may take before it is ended with all that it has started; `bytes` is for all of its processes."""

    seconds: float
    bytes: float = math.inf


@dataclass(frozen=True, slots=True)
class Ran:
    """`code` is pytest's; `ended`: why it was ended, if it was."""

    code: int
    ended: str
    said: str


@dataclass
class Copy:
    """A copy of the tree, and what runs tests in it."""

    folder: Path
    _nursery: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        paths = [str(self.tree / "src"), str(self.tree)]
        self._nursery = subprocess.Popen(
            [sys.executable, "-P", str(self.tree / "tests/mutants/nursery.py")],
            cwd=self.tree,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # who interrupts this one does not interrupt how that one puts things away
        )

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    def run(self, tests: Sequence[str], limits: Limits, *options: str) -> Ran:
        log, scratch = self.folder / "said.txt", self.folder / "t"
        # Servers that run as another user go through it to their own folder.
        scratch.mkdir(mode=0o711)
        asked = {"options": [*_OPTIONS, *options, *tests], "log": str(log), "scratch": str(scratch)}
        try:
            code, ended = self._told({**asked, "seconds": limits.seconds, "bytes": limits.bytes})
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return Ran(code, ended, log.read_text(encoding="utf-8", errors="replace"))

    def attempt(self, mutant: Mutant, limits: Limits, first: str = "") -> Trial:
        """Put the slip in, run its tests up to the first failure, and take it out again. `first`: a test that has
        noticed it before; the others are run only if it does not.
        """
        path = self.tree / mutant.path
        source = path.read_text(encoding="utf-8")
        began = time.monotonic()
        try:
            _write(path, mutant.of(source))
            for tests in [(first,), mutant.tests] if first else [mutant.tests]:
                verdict, by = _judged(self.run(tests, limits, "-x"))
                if verdict is Verdict.NOTICED:
                    break
        finally:
            _write(path, source)
        if verdict is Verdict.NOTICED and not is_test(by) and self.failing(tests, limits):
            verdict, by = Verdict.BROKEN, f"{WITHOUT}{by}"
        return Trial(verdict, by, time.monotonic() - began)

    def failing(self, tests: Sequence[str], limits: Limits) -> list[str]:
        """Which of these fail without a slip: they are run together, and those that fail then, by themselves."""
        ran = self.run(tests, replace(limits, seconds=limits.seconds * len(tests)))
        if ran.code == _PASSED or not tests:
            return []
        suspects = _FAILURE.findall(ran.said)
        again = [each for each in tests if not suspects or any(found.startswith(each) for found in suspects)]
        return [each for each in again if self.run((each,), limits).code != _PASSED]

    def close(self) -> None:
        """A run is cut short; what it has started is ended."""
        self._nursery.send_signal(signal.SIGINT)
        self._nursery.wait()
        with self._nursery:
            pass  # its pipes

    def _told(self, asked: Mapping[str, object]) -> tuple[int, str]:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(f"{json.dumps(asked)}\n")
        self._nursery.stdin.flush()
        line = self._nursery.stdout.readline()
        if not line:
            raise KeyboardInterrupt  # it was closed
        code, ended = json.loads(line)
        return code, ended


@contextmanager
def copied(root: Path) -> Iterator[Copy]:
    """Of the tree as it is, committed or not."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o711)
        tree = folder / "tree"
        tree.mkdir()
        for name in _COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, tree / name, ignore=_LEFT_OUT)
            elif (root / name).exists():
                shutil.copy2(root / name, tree / name)
        copy = Copy(folder)
        try:
            yield copy
        finally:
            copy.close()


def is_test(by: str) -> bool:
    """Whether what noticed a mutant is a test that can be named."""
    return "::" in by


def _judged(ran: Ran) -> tuple[Verdict, str]:
    if ran.ended:
        return Verdict.NOTICED, f"nothing in particular: {ran.ended}"
    if ran.code == _PASSED:
        return Verdict.UNSEEN, "all of its tests pass"
    failed = _FAILURE.search(ran.said)
    if ran.code == _FAILED or ran.code < 0:
        return Verdict.NOTICED, failed[1] if failed else "a test that died"
    return Verdict.BROKEN, f"pytest ends with {ran.code}: {ran.said.strip()[-1_000:]}"


def _write(path: Path, text: str) -> None:
    """What was compiled of the file is put away: Python tells by size and second whether it still holds."""
    path.write_text(text, encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()
