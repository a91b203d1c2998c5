"""Make tests of all folders quick, and let none fail for being slow: memory instead of a disk, nothing compiled again
that is there already, and no deadlines.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from hypothesis import Phase, settings
from xdist.remote import Producer

from tests import groups
from tests.proof import DEAR, is_proved, proved

_ROOT: Final = Path(__file__).resolve().parents[1]
_MEMORY: Final = Path("/dev/shm")
#: Servers and folders of three workers take less than half of it.
_ENOUGH_BYTES: Final = 4 << 30


def _use_memory() -> None:
    """Databases of tests wait for a disk at every commit; where there is room in memory, temporary files go there."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ENOUGH_BYTES:
        return
    folder = _MEMORY / f"instep-tests-{os.getuid()}"
    # Servers that run as another user, because this one is root, go through it to their own folder.
    folder.mkdir(mode=0o711, exist_ok=True)
    # Processes that tests start get it, too.
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None


_use_memory()
# What a shell starts in the background ignores Ctrl-C, and so would what it starts in turn: no test could send one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Programs that tests start would compile all that they import each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Nothing becomes garbage as tests are collected.
gc.disable()
# Rewriting all assertions anew takes each process longer than many folders of tests do.
sys.dont_write_bytecode = False

# Spark's Python workers look for what is in tests, and find nothing in the folder that they stand in.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))

# A machine that is busy is no fault of an example. (What else the profile in use says, that of a CI server say, stays.)
settings.register_profile("instep", settings(deadline=None, max_examples=40))
# `make soak` looks longer.
settings.register_profile("thorough", settings(deadline=None, max_examples=1_000))
settings.load_profile("instep")
# For `tests.mutants`, which asks only whether something fails.
settings.register_profile("hasty", settings(phases=[Phase.explicit, Phase.reuse, Phase.generate], database=None))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove", action="store_true", help="run tests marked `proof` though nothing has changed")


def pytest_collection_finish() -> None:
    """What was imported and collected stays: looking for garbage in it takes half a second each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    groups.mark(items)
    for item in items:
        if item.nodeid.startswith(DEAR):
            item.add_marker(pytest.mark.proof)
    if not config.getoption("prove"):
        _leave_out_proved(config, items)
    if config.getoption("loadgroup", False):
        groups.arrange(items)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that are proved as a whole, but for those that are asked for by their name or folder."""
    path = collection_path.relative_to(_ROOT).as_posix() if collection_path.is_relative_to(_ROOT) else ""
    if config.getoption("prove") or not (path.startswith(DEAR) and path.endswith(".py")):
        return None
    asked = {Path(each.partition("::")[0]).resolve() for each in config.args} - {_ROOT, _ROOT / "tests"}
    return None if asked & {collection_path, *collection_path.parents} else _is_proved(path) or None


def _leave_out_proved(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that are marked `proof` in files that have others."""
    left_out = [item for item in items if item.get_closest_marker("proof") and _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _is_left_out(item: pytest.Item) -> bool:
    path = f"tests/{groups.path_of(item)}"
    return not path.startswith(DEAR) and _is_proved(path)


@cache
def _is_proved(path: str) -> bool:
    return is_proved(path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("dist", "no") == "loadgroup" and not config.getoption("prove"):
        files = sum(map(is_proved, proved()))
        terminalreporter.write_line(
            f"Proofs that passed with these very files are left out (make soak): of {files} files"
        )


@pytest.hookimpl(optionalhook=True)  # some tests run others without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> groups.GroupScheduling | None:
    """Schedule by the groups themselves: the marks of xdist 3.8 are lost on pytest 9.2."""
    return groups.GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="session", autouse=True)
def _statements() -> None:
    from tests.servers.sqlite import share_what_is_compiled

    share_what_is_compiled()
