"""Modules by their source: what their statements bind, import and do. Nothing is run to find out."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final, TypeAlias

from instep.errors import UserError
from instep.own_source import is_installed, source_as_loaded

#: `a.b.c`: as it stands in a module, or from the top of a package on.
Names: TypeAlias = tuple[str, ...]
#: By the name that is bound in a module, what it means.
Imports: TypeAlias = dict[str, list[Names]]
#: The test of what a module does only where it is a script.
_SCRIPT: Final = "__name__ == '__main__'"
DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Module:
    """A module: its statements, those that bind each name, and its imports. Where there is no source, or none that can
    be parsed, its `content` stands for it.
    """

    def __init__(self, name: str, data: bytes, *, is_package: bool) -> None:
        self.name = name
        self.is_package = is_package
        self.content = ""
        self.statements: list[ast.stmt] = []
        try:
            self.statements = [each for each in ast.parse(data).body if not _never_runs(each)]
        except (SyntaxError, ValueError):
            self.content = hashlib.sha256(data).hexdigest()
        self.bound: dict[str, list[int]] = defaultdict(list)
        for number, statement in enumerate(self.statements):
            for each in _bound(statement):
                self.bound[each].append(number)
        self.imports = self.imports_of(*(node for each in self.statements for node in _at_import(each)))

    def imports_of(self, *nodes: ast.AST) -> Imports:
        """The imports of these nodes; by `*` modules of which they take everything, and by `""` all that they name."""
        found: Imports = defaultdict(list)
        for node in nodes:
            if isinstance(node, ast.Import):
                for each in node.names:
                    path = tuple(each.name.split("."))
                    found[each.asname or path[0]].append(path if each.asname else path[:1])
                    found[""].append(path)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                for each in node.names:
                    path = base if each.name == "*" else (*base, each.name)
                    if not path:  # A module in no package takes all of the package that it is not in.
                        continue
                    found[each.asname or each.name].append(path)
                    found[""].append(path)
        return found

    def _base(self, node: ast.ImportFrom) -> Names:
        own = self.name.split(".")
        package = own[: len(own) - node.level + self.is_package] if node.level else []
        return (*package, *(node.module.split(".") if node.module else []))

    def does(self) -> Iterator[int]:
        """The statements that do something when the module is imported, besides binding names."""
        for number, statement in enumerate(self.statements):
            if any(map(_does, _at_import(statement))):
                yield number


class OwnModules:
    """The modules that belong together with one: of its package, or beside it where nothing is installed. Each as its
    file is now, or `as_loaded`.
    """

    def __init__(self, name: str, *, as_loaded: bool = False) -> None:
        self._as_loaded = as_loaded
        #: Whether a file holds something else than what was loaded from it.
        self.changed = False
        self._top = name.partition(".")[0]
        place = _place(self._top)
        self.installed = place is not None and is_installed(place)
        self._place = None if self.installed else place
        self._read: dict[Names, Module | None] = {}

    def has(self, top: str) -> bool:
        """Whether the package, or module in none, is one of them."""
        beside = self._place is not None and top not in sys.stdlib_module_names
        return top == self._top or (beside and _place(top) == self._place)

    def module(self, names: Names) -> Module | None:
        """The module that is called so; None if there is none."""
        if names not in self._read:
            name = ".".join(names)
            spec = _spec(name)
            is_package = spec is not None and spec.submodule_search_locations is not None
            self._read[names] = Module(name, self._source(spec), is_package=is_package) if spec is not None else None
        return self._read[names]

    def _source(self, spec: ModuleSpec) -> bytes:
        now = _data(spec)
        if not self._as_loaded or not spec.origin:
            return now
        loaded = source_as_loaded(spec.name, Path(spec.origin), now)
        self.changed = self.changed or loaded != now
        return loaded


def package_content(package: str) -> str:
    """A digest of the code of a package of which no version is known; empty if there is none."""
    spec = _spec(package)
    if spec is None:
        return ""
    folders = [Path(each) for each in spec.submodule_search_locations or ()]
    made = hashlib.sha256(_data(spec))
    for path in (each for folder in folders for each in sorted(folder.rglob("*.py"))):
        if path.is_file() and not path.name.startswith("."):  # An editor's lock, say.
            made.update(_bytes(path))
    return made.hexdigest()[:16]


def _spec(name: str) -> ModuleSpec | None:
    """The place of a module, as the import system says: without importing what it is in."""
    loaded: ModuleSpec | None = getattr(sys.modules.get(name), "__spec__", None)
    if loaded is not None:
        return loaded
    parent = name.rpartition(".")[0]
    within = _spec(parent) if parent else None
    folders = within.submodule_search_locations if within else None
    if parent and folders is None:
        return None
    found = (each.find_spec(name, folders) for each in sys.meta_path if hasattr(each, "find_spec"))
    return next((each for each in found if each is not None), None)


def _data(spec: ModuleSpec) -> bytes:
    if spec.origin and Path(spec.origin).is_file():
        return _bytes(Path(spec.origin))
    try:  # It may be in an archive.
        data: bytes = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    except (AttributeError, OSError):
        return b""
    return data


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"this code cannot be read: {error.strerror}", where=str(path)) from None


def _place(top: str) -> Path | None:
    """The folder that a package, or a module in none, is in."""
    spec = _spec(top)
    if spec is None:
        return None
    where = next(iter(spec.submodule_search_locations or ()), spec.origin if spec.has_location else None)
    return Path(where).resolve().parent if where else None


def _at_import(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement that run when its module is imported: not those in functions and classes."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, DEFINITIONS):
            waiting += ast.iter_child_nodes(node)


def _bound(statement: ast.stmt) -> set[str]:
    found = set()
    for node in _at_import(statement):
        if isinstance(node, DEFINITIONS):
            found.add(node.name)
            found.update(*(each.names for each in ast.walk(node) if isinstance(each, ast.Global)))
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
    return found


def _does(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute | ast.Subscript):
        return not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.AugAssign):  # It may change what was imported in its place.
        return True
    return isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)


def _never_runs(statement: ast.stmt) -> bool:
    """Whether it is a docstring, or for type checkers, or for a script alone."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    test = statement.test
    named = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else None
    return named == "TYPE_CHECKING" or ast.unparse(test) == _SCRIPT
