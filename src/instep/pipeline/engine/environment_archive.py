"""The libraries of this environment as an archive, for executors that have a bare Python.

Not the environment itself: its `python` is a link to one of this machine. Executors unpack the archive beside their
work and have it on their path; which Python runs them is theirs.
"""

from __future__ import annotations

import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from instep.errors import UserError

#: Spark's jars, which executors have, and what a session brings along or no task needs: by the beginnings of paths.
_LEFT_OUT = (
    *("pyspark/bin", "pyspark/data", "pyspark/examples", "pyspark/jars", "pyspark/licenses", "pyspark/sbin"),
    *("instep", "pip", "setuptools", "_distutils_hack"),
)
#: The name under which executors unpack it.
_FOLDER = "environment"


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive of so many distributions."""

    path: Path
    size: int
    distributions: int

    @property
    def config(self) -> dict[str, str]:
        """Settings of Spark that have executors use it."""
        return {
            "spark.archives": f"{self.path}#{_FOLDER}",
            "spark.executorEnv.PYTHONPATH": f"./{_FOLDER}",
            "spark.pyspark.python": f"python{sys.version_info.major}.{sys.version_info.minor}",
        }


def pack(output: Path) -> Packed:
    """Write the archive, in place of one that is there. Spark reads these kinds: `.tar`, `.tar.gz`, `.tgz`."""
    name = output.name
    if not name.endswith((".tar", ".tar.gz", ".tgz")):
        raise UserError(f"Spark unpacks no archive of the name {name!r}", hint="End it in .tar.gz, .tgz or .tar.")
    part = output.with_name(f".{name}.part")
    try:
        # Links are followed: an environment may be made of links into a cache of this machine.
        with (
            tarfile.open(part, "w", dereference=True)
            if name.endswith(".tar")
            else tarfile.open(part, "w:gz", dereference=True, compresslevel=1) as archive
        ):
            for place in dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib"))):
                # Not the folder itself: Spark takes an entry of that name for one outside.
                for each in sorted(Path(place).iterdir()):
                    archive.add(each, each.name, filter=_kept)
        part.replace(output)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(output)) from error
    finally:
        part.unlink(missing_ok=True)
    return Packed(output.resolve(), output.stat().st_size, sum(1 for _ in distributions()))


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = member.name
    if path.endswith(".pth") or any(path == each or path.startswith(f"{each}/") for each in _LEFT_OUT):
        return None
    # Executors run as some other user.
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
