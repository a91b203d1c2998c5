"""The source of users' modules as this process has loaded it: their files may hold another one by now.

A finder before all others notes it at each import, of whatever is not installed. What was loaded before that, or
otherwise, is read when it is first asked for.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple


class _Kept(NamedTuple):
    """A source, and the import that it is of: None if that is still to come."""

    source: bytes
    spec: object


#: By the files of modules.
_kept: dict[Path, _Kept] = {}
#: The files of modules that were imported again from another source, as often as that was so.
_replaced: list[Path] = []


def source_as_loaded(name: str, file: Path, now: bytes) -> bytes:
    """The source that this process has loaded a module from, or will load it from when it is first imported: what its
    file holds now, if that was not known before.
    """
    path = file.resolve()
    spec = getattr(sys.modules.get(name), "__spec__", None)
    kept = _kept.get(path)
    if kept is None or (kept.spec is not None and kept.spec is not spec):  # Equal they are, each time.
        kept = _Kept(now, spec)
    _keep(path, kept._replace(spec=spec))
    return kept.source


def kept_source(file: Path) -> bytes | None:
    """The source that was asked for, or imported; None if neither has been."""
    kept = _kept.get(file)
    return kept.source if kept else None


def replacements() -> int:
    """The number of imports of a module that was imported before, from another source."""
    return len(_replaced)


def note_imports() -> None:
    """From now on, keep the source of each module that is imported and not installed."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def is_installed(folder: Path) -> bool:
    """Whether libraries are in this folder."""
    return folder in _places() or "site-packages" in folder.parts


@cache
def _places() -> frozenset[Path]:
    return frozenset(Path(place).resolve() for place in sysconfig.get_paths().values())


class _Finder(MetaPathFinder):
    """Has what the other finders find loaded by `_SourceLoader`, if it is a file of the user's."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        others = (each for each in sys.meta_path if each is not self and hasattr(each, "find_spec"))
        spec = next((found for each in others if (found := each.find_spec(fullname, path, target))), None)
        if spec is not None and type(spec.loader) is SourceFileLoader and not _is_library(fullname, spec.loader.path):
            spec.loader = _SourceLoader(fullname, spec.loader.path)
        return spec


class _SourceLoader(SourceFileLoader):
    """Runs a module from the source that it keeps. What Python has compiled before may be of another one: it is taken
    by its time, in whole seconds, and its size.
    """

    def exec_module(self, module: ModuleType) -> None:
        path = Path(self.path).resolve()
        kept = _kept.get(path)
        source = kept.source if kept is not None and kept.spec is None else self.get_data(self.path)
        _keep(path, _Kept(source, module.__spec__))
        exec(self.source_to_code(source, self.path), module.__dict__)  # noqa: S102 - as Python's loader does


def _keep(path: Path, kept: _Kept) -> None:
    before = _kept.get(path)
    _kept[path] = kept
    if before is not None and before.source != kept.source:
        _replaced.append(path)


def _is_library(name: str, file: str) -> bool:
    top = name.partition(".")[0]
    if top == "instep" or top in sys.stdlib_module_names or "site-packages" in file:
        return True
    path = Path(file).resolve()
    return is_installed(path.parents[name.count(".") + (path.name == "__init__.py")])


_FINDER: Final = _Finder()
