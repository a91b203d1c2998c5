"""Runs of a DAG by `dag.test()`, in a process of their own as a worker has one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_RUN: Final = """\
import json
import runpy
import sys

run = runpy.run_path(sys.argv[1])["dag"].test()
tasks = {
    each.task_id: {"state": each.state, "tries": each.try_number, "xcom": each.xcom_pull(each.task_id)}
    for each in run.get_task_instances()
}
print("RESULT " + json.dumps(tasks))
"""


@dataclass(frozen=True)
class Ran:
    """Tasks by name, with `state`, `tries` and `xcom`; and all that was printed."""

    tasks: Mapping[str, Mapping[str, Any]]
    log: str

    @property
    def states(self) -> Mapping[str, tuple[str, int]]:
        return {name: (each["state"], each["tries"]) for name, each in self.tasks.items()}


def start(dag: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _RUN, str(dag)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process: subprocess.Popen[str]) -> Ran:
    log, _ = process.communicate(timeout=300)
    results = [line.removeprefix("RESULT ") for line in log.splitlines() if line.startswith("RESULT ")]
    assert results, log
    return Ran(json.loads(results[-1]), log)


def run(dag: Path) -> Ran:
    return end(start(dag))
