"""Runs tests on a copy of the tree, with a slip in it or without: the checkout stays as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Mutant

#: What tests read besides themselves and the product.
_COPIED: Final = ("src", "tests", "docs", "examples", "pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", ".hypothesis", ".instep")

#: Pytest's exit codes.
_PASSED, _FAILED = 0, 1

#: Examples are made up in the same way each time, and what fails is not made smaller. Plugins are loaded before pytest.
_OPTIONS: Final = (
    *("-q", "--tb=short", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("--hypothesis-profile=hasty", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
)

#: To put away what they have started, after they were interrupted.
_GRACE_SECONDS: Final = 30.0


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
class Ran:
    """`code` is pytest's, None when its time was up."""

    code: int | None
    said: str


@dataclass
class Copy:
    """A copy of the tree, and what runs tests in it."""

    tree: Path
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
        )

    def run(self, tests: Sequence[str], seconds: float, *options: str) -> Ran:
        log = self.tree / "said.txt"
        child = self._asked(json.dumps({"options": [*_OPTIONS, *options, *tests], "log": str(log)}))
        late = threading.Event()

        def end() -> None:
            late.set()
            _end(child)

        timer = threading.Timer(seconds, end)
        timer.start()
        code = int(self._line())
        timer.cancel()
        said = log.read_text(encoding="utf-8", errors="replace")
        return Ran(None if late.is_set() else code, said)

    def attempt(self, mutant: Mutant, seconds: float) -> Trial:
        """Put the slip in, run its tests up to the first failure, and take it out again."""
        path = self.tree / mutant.path
        source = path.read_text(encoding="utf-8")
        began = time.monotonic()
        try:
            _write(path, mutant.of(source))
            ran = self.run(mutant.tests, seconds, "-x")
        finally:
            _write(path, source)
        return Trial(*_judged(ran, seconds), time.monotonic() - began)

    def close(self) -> None:
        self._nursery.communicate()

    def _asked(self, line: str) -> int:
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(f"{line}\n")
        self._nursery.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self._nursery.stdout is not None
        return self._nursery.stdout.readline()


@contextmanager
def copied(root: Path) -> Iterator[Copy]:
    """Of the tree as it is, committed or not."""
    with tempfile.TemporaryDirectory(prefix="instep-mutants-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        for name in _COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, tree / name, ignore=_LEFT_OUT)
            elif (root / name).exists():
                shutil.copy2(root / name, tree / name)
        copy = Copy(tree)
        try:
            yield copy
        finally:
            copy.close()


def _judged(ran: Ran, seconds: float) -> tuple[Verdict, str]:
    if ran.code is None:
        return Verdict.NOTICED, f"nothing in particular: it still ran after {seconds:g} s"
    if ran.code == _PASSED:
        return Verdict.UNSEEN, "all of its tests pass"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.said, re.MULTILINE)
    if ran.code == _FAILED or ran.code < 0:
        return Verdict.NOTICED, failed[1] if failed else "a test that died"
    return Verdict.BROKEN, f"pytest ends with {ran.code}: {ran.said.strip()[-1_000:]}"


def _write(path: Path, text: str) -> None:
    """What was compiled of the file is put away: Python tells by size and second whether it still holds."""
    path.write_text(text, encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def _end(child: int) -> None:
    """First as a person would, so that it ends the servers that it has started."""
    deadline = time.monotonic() + _GRACE_SECONDS
    try:
        os.kill(child, signal.SIGINT)
        while time.monotonic() < deadline:
            os.kill(child, 0)
            time.sleep(0.1)
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return
