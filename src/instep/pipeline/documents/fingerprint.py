"""Fingerprints of what turns a source into rows, of functions, and the revision of a project.

The fingerprint of a function: its code, that of the helpers it calls, and the libraries it names.

Code is compared by its syntax tree, so that comments and layout do not count. Helpers are followed
through names and attributes as far as they belong to the function's own top-level package (or to
its own file); of other packages the installed version counts.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import ModuleType
from typing import Any

from instep.domain.document_columns import DeclaredColumn
from instep.domain.fingerprint import WORDS, column_fingerprint, column_part, digest
from instep.domain.words import SEARCHED_BY_DEFAULT, Searched
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.embed.embedder import Embedder

#: By the id of a function that is kept: the function and its fingerprint.
_loaded: dict[int, tuple[Any, str]] = {}


def loaded_fingerprint(function: Any) -> str:
    """The fingerprint of the loaded code, taken when it was first asked for: its file may have changed since it was
    loaded.
    """
    if id(function) not in _loaded:
        _loaded[id(function)] = (function, code_fingerprint(function))
    return _loaded[id(function)][1]


def code_fingerprint(function: Any) -> str:
    """Changes when the function would do something else, as far as its code and libraries tell."""
    found = _Found(inspect.unwrap(function).__module__.partition(".")[0])
    found.visit(function)
    return digest([sorted(found.code.items()), sorted(found.versions.items())])


class _Found:
    def __init__(self, package: str) -> None:
        self._package = package
        self.code: dict[str, str] = {}
        self.versions: dict[str, str] = {}

    def visit(self, thing: Any) -> None:
        """Take note of a function, class, module or value that the code refers to."""
        thing = inspect.unwrap(thing) if callable(thing) else thing
        module = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
        if module is None or module == builtins.__name__:
            return
        package = module.partition(".")[0]
        if package != self._package:
            self._library(package)
        elif inspect.isfunction(thing) or inspect.isclass(thing):
            self._function(thing)

    def _function(self, thing: Any) -> None:
        name = f"{thing.__module__}.{thing.__qualname__}"
        if name in self.code:
            return
        tree = _tree(thing)
        self.code[name] = ast.dump(tree) if tree else ""
        if tree is None:
            return
        scope = vars(sys.modules[thing.__module__]) | _closure(thing)
        for path in _paths(tree):
            self._path(path, scope, name)
        for imported in _imports(tree):
            self._imported(imported)

    def _path(self, path: tuple[str, ...], scope: dict[str, Any], owner: str) -> None:
        """Follow `a.b.c` as far as it leads through modules and classes."""
        if path[0] not in scope:
            return
        thing = scope[path[0]]
        self._value(f"{owner}:{path[0]}", thing)
        for attribute in path[1:]:
            if not isinstance(thing, ModuleType) and not inspect.isclass(thing):
                return
            thing = getattr(thing, attribute, None)
            self._value(f"{owner}:{'.'.join(path)}", thing)

    def _value(self, name: str, thing: Any) -> None:
        if isinstance(thing, str | bytes | int | float | bool | None | tuple | list | dict | set | frozenset):
            self.code[name] = _constant(thing)
        else:
            self.visit(thing)

    def _imported(self, name: str) -> None:
        """Modules that the function imports itself."""
        if name.partition(".")[0] != self._package:
            self._library(name.partition(".")[0])
            return
        module_name, _, attribute = name.rpartition(".")
        module = sys.modules.get(name) or sys.modules.get(module_name)
        if module is not None and module.__name__ != name:
            self.visit(getattr(module, attribute, None))

    def _library(self, package: str) -> None:
        if package in sys.stdlib_module_names:
            self.versions["python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
            return
        for distribution in _distributions().get(package, [package]):
            try:
                self.versions[distribution] = version(distribution)
            except PackageNotFoundError:
                self.versions[package] = ""


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """The distributions that a package comes from. Looking through all that is installed takes long."""
    return packages_distributions()


def installed_versions(package: str) -> list[str]:
    """Name and version of what a package is installed from; none for one that is not installed."""
    return [f"{each} {version(each)}" for each in sorted(set(_distributions().get(package.partition(".")[0], ())))]


def _constant(value: Any) -> str:
    """Repeatable text of plain data; sets have no order of their own."""
    if isinstance(value, set | frozenset):
        return repr(sorted(map(repr, value)))
    if isinstance(value, dict):
        return repr([(repr(key), _constant(each)) for key, each in value.items()])
    if isinstance(value, tuple | list):
        return repr([_constant(each) for each in value])
    plain = value is None or isinstance(value, str | bytes | int | float)
    return repr(value) if plain else type(value).__qualname__


def _tree(thing: Any) -> ast.AST | None:
    """The syntax tree of a function without docstrings; None when there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _closure(thing: Any) -> dict[str, Any]:
    return dict(inspect.getclosurevars(thing).nonlocals) if inspect.isfunction(thing) else {}


def _paths(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """Dotted names that the code reads: `pc.utf8_lower` → ("pc", "utf8_lower")."""
    for node in ast.walk(tree):
        names: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield (inner.id, *reversed(names))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


#: `targets.document_target.row_schema` in words, so that asking for the fingerprint needs no Arrow.
ROWS = (
    "document_id:string document_hash:string source_uri:string source_version:string chunk_id:string "
    "chunk_hash:string chunk_index:int32 title:string? text:string vector:float32[] _searched:string "
    "modified:timestamp[us, tz=UTC]? _ref:string _instance:string _version:int64"
)
#: What is done with the columns, as far as an index that was made in another way would not do it. A chunk's hash is of
#: its title and its text, and words of both are found; its id is of its text.
RULES = "titles-2"


def fingerprint(
    *,
    chunker: Chunker,
    embedder: Embedder,
    transform: Callable[..., Any] | None = None,
    columns: Sequence[DeclaredColumn] = (),
    parser: str,
    searched: Searched = SEARCHED_BY_DEFAULT,
) -> dict[str, str]:
    """Part → fingerprint: parser, chunker, embedder, schema, words, each declared
    column and, if there is one, transform.
    """
    parts = {
        "parser": parser,
        "chunker": chunker.fingerprint,
        "embedder": embedder.fingerprint,
        "schema": digest([ROWS, RULES, embedder.dimensions]),
        WORDS: searched.fingerprint,
    }
    for each in columns:
        parts[column_part(each.name)] = column_fingerprint(each.column.type, each.origin, each.of, each.lenient)
    if transform is not None:
        parts["transform"] = loaded_fingerprint(transform)
    return parts


_SECONDS = 5.0


def revision_of(folder: Path) -> str:
    """The commit that is checked out in this folder's git repository, with `+` for changes since; '' without one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return ""
    return commit + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".") else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - git is found in the PATH, as for any user; what it is told is fixed here
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
