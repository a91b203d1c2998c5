"""Code that tasks of Spark get with the session: they run in other processes, or on other machines, where it is not.

Instep itself goes as a whole, so that every task runs this very version. A transform's module
is sent along with what it imports of the same place, by name, and packages as a whole: what is installed is there
already, and nothing else of the project's folder is put on a path, where it could stand in for a library.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from instep.error_transport import explained
from instep.errors import InstepError, Outdated, Transient
from instep.own_source import is_installed, kept_source, replacements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Modules whose code a session has, each with what it got: as a digest, as of so many replacements of sources.
_SENT: WeakKeyDictionary[Any, dict[str, tuple[str, int]]] = WeakKeyDictionary()
#: Bytes of a data file that travels with the code of its package, at most.
MAX_DATA = 10_000_000
#: The same code is the same archive, whenever it is made.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def send(session: SparkSession, function: Callable[..., Any]) -> None:
    """Let the session's tasks import the module of a function; nothing happens if that is installed."""
    module = getattr(inspect.unwrap(function), "__module__", None)
    if module is None:
        return
    sent, as_of = _SENT.setdefault(session, {}), replacements()
    before, before_as_of = sent.get(module, ("", -1))
    if before_as_of == as_of:
        return
    try:
        archive = _archive(module, as_of) or b""
        digest = hashlib.sha256(archive).hexdigest()
        if before and digest != before:
            _demand_other_workers(session, module, digest)
        if archive and digest != before:
            _send(session, archive)
    except Exception as error:
        found = explained(error)
        # A wave that cannot be given its code says nothing about the documents in it.
        raise found if isinstance(found, InstepError) else Transient(f"Spark did not take {module}: {found}") from error
    sent[module] = digest, as_of


def _demand_other_workers(session: SparkSession, module: str, digest: str) -> None:
    """Have tasks run in new workers from now on: one that has imported a module stays with it. Raises `Outdated`."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise Outdated(
            f"{module} was imported again, and a session of Spark Connect keeps the code that it got first",
            hint="Restart this process, or use another session.",
        )
    session.sparkContext.environment["INSTEP_CODE"] = digest  # Workers of another environment are left alone.


def send_instep(session: SparkSession) -> None:
    """Let the session's tasks import Instep in the version of this process, whichever they find installed, if any."""
    sent = _SENT.setdefault(session, {})
    if "instep" in sent:
        return
    try:
        _send(session, _instep())
    except Exception as error:
        found = explained(error)
        raise found if isinstance(found, InstepError) else Transient(f"Spark did not take Instep: {found}") from error
    sent["instep"] = "", 0


@cache
def _instep() -> bytes:
    """An archive of the package, with what Python has compiled of it: else each new worker compiles it again."""
    root = Path(__file__).parents[1]
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(Path(__file__).parent.rglob("*.py")):
            name = each.relative_to(root).as_posix()
            changed = time.localtime(each.stat().st_mtime)[:6]
            archive.writestr(zipfile.ZipInfo(name, changed), each.read_bytes(), zipfile.ZIP_DEFLATED)
            compiled = Path(cache_from_source(str(each)))
            if compiled.is_file():
                archive.writestr(zipfile.ZipInfo(f"{name}c", changed), compiled.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _send(session: SparkSession, archive: bytes) -> None:
    # Named for what is in it: Spark takes no other file of a name that it knows.
    path = Path(_folder().name) / f"instep_code_{hashlib.sha256(archive).hexdigest()[:16]}.zip"
    path.write_bytes(archive)
    before = set(sys.path)
    session.addArtifacts(str(path), pyfile=True)
    # Spark puts it first on the path of this process as well, which has the code itself.
    sys.path[:] = [each for each in sys.path if each in before]


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder until this process ends: executors fetch from it when they run their first task."""
    return tempfile.TemporaryDirectory(prefix="instep-code-")


@cache
def _archive(module: str, as_of: int) -> bytes | None:
    """An archive of the code as it was loaded, or when this process first asked: it may have changed since. `as_of`: so
    many replacements of sources.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not file.endswith(".py"):
        return None
    path = Path(file).resolve()
    depth = module.count(".") + (path.name == "__init__.py")
    root = path.parents[depth]
    if is_installed(root):
        return None
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(_needed(root, path)):
            entry = zipfile.ZipInfo(each.relative_to(root).as_posix(), _EPOCH)
            archive.writestr(entry, _source(each), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _source(file: Path) -> bytes:
    kept = kept_source(file)
    return file.read_bytes() if kept is None else kept


def _needed(root: Path, start: Path) -> set[Path]:
    """Files below `root` that a module is made of: itself, what it imports, and what that does."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        packages = (folder / "__init__.py" for folder in path.parents if root in folder.parents)
        waiting += [each for each in packages if each.is_file()]
        for name in _imported(path, root):
            waiting += _files(root, name)
    # A package goes as a whole, with its data: a part of it would hide the rest, which another transform may need.
    whole = {root / each.relative_to(root).parts[0] for each in found}
    return found.union(*(_all_of(each) for each in whole if (each / "__init__.py").is_file()))


def _all_of(package: Path) -> Iterator[Path]:
    """Its modules and data files, but for what is compiled, hidden or too large to travel with each session."""
    for path in package.rglob("*"):
        hidden = any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(package).parts)
        if path.is_file() and not hidden and (path.suffix == ".py" or path.stat().st_size <= MAX_DATA):
            yield path


def _imported(path: Path, root: Path) -> Iterator[str]:
    """Dotted names that a file imports; of `from a import b` both `a` and `a.b`, which may be a module."""
    try:
        tree = ast.parse(_source(path))
    except SyntaxError:
        return
    package = path.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            named = ".".join((*base, *([node.module] if node.module else [])))
            yield named
            yield from (f"{named}.{each.name}" if named else each.name for each in node.names)


def _files(root: Path, name: str) -> list[Path]:
    place = root.joinpath(*name.split("."))
    found = [place.with_name(f"{place.name}.py"), place / "__init__.py"] if name else []
    return [each for each in found if each.is_file() and not _is_elsewhere(root, name)]


def _is_elsewhere(root: Path, name: str) -> bool:
    """Whether this process has loaded it from another place: a library whose name the project has as well."""
    loaded = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
    return loaded is not None and root not in Path(loaded).resolve().parents
