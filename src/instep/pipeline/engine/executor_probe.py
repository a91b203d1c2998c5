"""Probes of an executor's host: versions of its libraries, its memory, and what it reaches.

They run in a task. Nothing is imported here that a host may lack.
"""

from __future__ import annotations

import base64
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import pyspark

import instep.errors
from instep.error_transport import explained, pack

#: Libraries that every task needs, by their names on the package index.
LIBRARIES: Final = ("pyspark", "pyarrow", "numpy", "msgspec", "pydantic", "fsspec", "pathspec")
#: What to do where one is missing.
BRING_LIBRARIES: Final = (
    "Install it in the Python of executors, or bring it along: `instep pack` makes an archive for `spark.archives`."
)
#: A container's own limit, as cgroups have it.
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def question(libraries: Iterable[str], tries: Mapping[str, Callable[[], Any]]) -> Callable[[], dict[str, Any]]:
    """A question for `executors.ask`: the versions of libraries (None: not there), the host's memory, and what became
    of each of the picklable `tries`: `said`, or an `error` that `unpacked` understands. Where a library is missing,
    nothing is tried: it would only say so again.
    """
    from pyspark.serializers import CloudPickleSerializer

    pickled = {name: CloudPickleSerializer().dumps(each) for name, each in tries.items()}
    return partial(_answer, tuple(libraries), pickled)


def versions(libraries: Iterable[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = dict.fromkeys(libraries)
    for name in found:
        with suppress(PackageNotFoundError):
            # Spark brings PySpark along in an archive, of which no installer knows.
            found[name] = pyspark.__version__ if name == "pyspark" else version(name)
    return found


def _answer(libraries: tuple[str, ...], tries: Mapping[str, bytes]) -> dict[str, Any]:
    memory, free = _memory()
    found = versions(libraries)
    return {
        "python": platform.python_version(),
        "versions": {"instep": instep.__version__, **found},
        "memory": memory,
        "free": free,
        "tries": {name: _tried(each) for name, each in tries.items()} if all(found.values()) else {},
    }


def _tried(pickled: bytes) -> dict[str, Any]:
    from pyspark.serializers import CloudPickleSerializer

    try:
        said = CloudPickleSerializer().loads(pickled)()
    except Exception as error:
        return {"error": pack(explained(error))}
    return {"said": base64.b64encode(said).decode() if isinstance(said, bytes) else said}


def _memory() -> tuple[int | None, int | None]:
    """The memory of the machine, total and free, in bytes; None if the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, None
    with suppress(OSError, ValueError):  # "max" where there is no limit.
        total = min(total, int(_LIMIT.read_text()))
    return total, min(total, free)
