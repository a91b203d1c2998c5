"""A writer that is killed between staging and commit."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys

from instep.targets.table_target import TableTarget

_STAGE_AND_DIE = """
import os, pickle, signal, sys
from instep.testing.table_rows import Node, staged
physical, base, target = sys.argv[1], int(sys.argv[2]), pickle.loads(bytes.fromhex(sys.argv[3]))
staged(target, physical, base, Node(7, "never committed", 7))
os.kill(os.getpid(), signal.SIGKILL)
"""


def stage_and_die(target: TableTarget, physical: str, base: int) -> None:
    """Stage a row in a process of its own, which is killed (kill -9) then."""
    arguments = [physical, str(base), pickle.dumps(target).hex()]
    done = subprocess.run([sys.executable, "-c", _STAGE_AND_DIE, *arguments], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
