"""Running one command as a user would, with its wall time and the memory of its whole process tree."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

#: A short peak between two samples is missed. RSS counts pages shared between processes once for each.
SAMPLE_SECONDS = 0.1


class Failed(RuntimeError):
    """A measured command ended badly; the message has the end of what it printed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall seconds from start to exit, CPU seconds of the tree, and its highest sampled RSS in bytes: of all, of the
    process itself, and of the JVMs that it started.
    """

    seconds: float
    cpu: float
    peak_rss: int
    output: str
    own_rss: int = 0
    jvm_rss: int = 0


def run(command: Sequence[str | Path], *, folder: Path) -> Measured:
    """Run to the end in `folder`; raises `Failed` on a non-zero exit."""
    with tempfile.TemporaryFile() as output:
        cpu_before, started = _children_cpu(), time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command], cwd=folder, stdout=output, stderr=subprocess.STDOUT, env=_environment()
        )
        watch = _TreeMemory(process.pid)
        watch.start()
        code = process.wait()
        seconds = time.perf_counter() - started
        watch.stop()
        cpu = _children_cpu() - cpu_before
        output.seek(0)
        text = output.read().decode(errors="replace")
    if code != 0:
        raise Failed(f"{' '.join(map(str, command))} (in {folder}) exited with {code}:\n{text[-3000:]}")
    return Measured(seconds, max(cpu, watch.cpu), watch.peak, text, watch.own, watch.jvm)


def _children_cpu() -> float:
    """Of all processes that ended and were waited for, by us or by those; steadier than wall time on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environment() -> dict[str, str]:
    """The user's environment without what belongs to the virtual environment that runs the benchmark."""
    return {key: value for key, value in os.environ.items() if key not in {"VIRTUAL_ENV", "PYTHONPATH", "SPARK_HOME"}}


class _TreeMemory(threading.Thread):
    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self.peak = self.own = self.jvm = 0
        self._cpu: dict[int, float] = {}

    @property
    def cpu(self) -> float:
        """CPU seconds by what was seen: a JVM that is left to end by itself is waited for by nobody."""
        return sum(self._cpu.values())

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            try:
                tree = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            rss = {each: self._looked_at(each) for each in tree}
            self.peak = max(self.peak, sum(rss.values()))
            self.own = max(self.own, rss[self._root])
            self.jvm = max(self.jvm, sum(bytes for each, bytes in rss.items() if _is_jvm(each)))

    def _looked_at(self, process: psutil.Process) -> int:
        try:
            with process.oneshot():
                times = process.cpu_times()
                self._cpu[process.pid] = times.user + times.system
                return int(process.memory_info().rss)
        except psutil.NoSuchProcess:
            return 0

    def stop(self) -> None:
        self._ended.set()
        self.join()


def _is_jvm(process: psutil.Process) -> bool:
    try:
        return str(process.name()) == "java"
    except psutil.NoSuchProcess:
        return False
