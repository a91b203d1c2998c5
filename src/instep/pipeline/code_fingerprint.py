"""Fingerprints of functions: all code of their own that they may reach, and the versions of the libraries they name.

Code is compared by the syntax trees of the statements of modules, so that comments, docstrings and layout do not count.
From the statement that binds the function, names lead to the statements that bind those, in all modules of its own
code, and imports are followed wherever they stand. No object is looked at: what made it counts, from source to source.
"""

from __future__ import annotations

import ast
import functools
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any, Final, NamedTuple, TypeAlias

from instep.domain.fingerprint import digest
from instep.errors import Outdated
from instep.own_source import replacements
from instep.pipeline.own_modules import DEFINITIONS, Module, Names, OwnModules, package_content

#: By the name of a function that is kept: the function and its fingerprint, and how often modules had been imported
#: again when that was taken.
_loaded: dict[str, tuple[Any, str, int]] = {}
#: The modules that these functions reach, and the import of each that it was then; None if it was not imported yet.
_modules: dict[str, object] = {}
_DEEP: Final = threading.RLock()
_DEEPEST: Final = 20_000
#: What may lead to anything in the module that names it.
_ANYTHING: Final = frozenset({"eval", "exec", "globals", "locals", "vars"})
#: What is followed: its kind, and what it is about.
_Step: TypeAlias = tuple[object, ...]
#: By this a class finds those that derive from it.
_SUBCLASSES: Final = ("__init_subclass__", "__subclasses__")


def loaded_fingerprint(name: str, function: Any) -> str:
    """The fingerprint of the loaded code, whatever its files hold by now. Raises `Outdated` if it would run together
    with a module that another function had loaded before that changed.
    """
    again = replacements()
    kept, found, before = _loaded.get(name, (None, "", 0))
    if kept is not function or again != before:
        code = _code(name, as_loaded=True)
        if code.changed:
            _demand_unchanged(code, _code(name))
        found = code.fingerprint
        _loaded[name] = (function, found, again)
        _modules.update((each, _import_of(each)) for each in code.modules)
    return found


def _demand_unchanged(loaded: _Code, now: _Code) -> None:
    """Raises `Outdated` where what has changed while it was imported would run with what is older."""
    older = (name for name, then in _modules.items() if then is None or then is _import_of(name))
    if name := next((each for each in older if loaded.modules.get(each) != now.modules.get(each)), None):
        raise Outdated(
            f"{name} has changed since this process loaded it",
            hint="Restart this process: it would run old and new code together.",
        )


def _import_of(module: str) -> object:
    return getattr(sys.modules.get(module), "__spec__", None)


def changed_code(names: Iterable[str]) -> list[str]:
    """Select the functions whose code or libraries have changed since this process loaded them."""
    return [each for each in dict.fromkeys(names) if _is_loaded(each) and code_fingerprint(each) != _loaded[each][1]]


def _is_loaded(name: str) -> bool:
    """Whether what was fingerprinted is still what its module has: it may have been imported again."""
    module, _, attribute = name.partition(":")
    return name in _loaded and getattr(sys.modules.get(module), attribute, None) is _loaded[name][0]


def code_fingerprint(name: str) -> str:
    """Changes when the function `package.module:name` would do something else, as far as code and libraries tell."""
    return _code(name).fingerprint


class _Code(NamedTuple):
    """The code that a function may reach: its fingerprint, and what it reaches of each module. `changed`: whether some
    of it was loaded from a file that holds something else by now.
    """

    fingerprint: str
    modules: Mapping[str, object]
    changed: bool


def _code(name: str, *, as_loaded: bool = False) -> _Code:
    module, _, attribute = name.partition(":")
    with _deep():
        own = OwnModules(module, as_loaded=as_loaded)
        reached = _Reached(own)
        reached.follow((*module.split("."), attribute))
        if own.installed:  # They change with their version, all at once; and may be many.
            reached.versions[module] = package_content(module.partition(".")[0])
        else:
            reached.add_registered()
        dumps = reached.dumps()
        found = digest([dumps, sorted(reached.imported), sorted(reached.versions.items())])
        return _Code(found, dict.fromkeys(reached.modules) | {each[0]: each[1:] for each in dumps}, own.changed)


@contextmanager
def _deep() -> Iterator[None]:
    """Trees are as deep as sums are long. The limit is that of the process."""
    with _DEEP:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, _DEEPEST))
        try:
            yield
        finally:
            sys.setrecursionlimit(before)


def installed_versions(package: str) -> list[str]:
    """Name and version of what a package is installed from; none for one that is not installed."""
    return [f"{each} {version(each)}" for each in sorted(set(_distributions().get(package.partition(".")[0], ())))]


class _Reached:
    """The statements that names lead to. With `imports`, what a module does when it is imported counts as well.

    A step leads from a name, a path, a module or a statement to the next ones.
    """

    def __init__(self, own: OwnModules, *, imports: bool = True) -> None:
        self._own = own
        self._imports = imports
        self._waiting: deque[tuple[_Step, Callable[[], object]]] = deque()
        #: The steps that lead to each one, and the one that is taken now; none at the start.
        self._from: dict[_Step, set[_Step]] = defaultdict(set)
        self._at: _Step = ()
        self.modules: dict[str, Module] = {}
        self.statements: dict[str, set[int]] = defaultdict(set)
        self.imported: set[str] = set()
        self.versions: dict[str, str] = {}

    def follow(self, path: Names) -> None:
        """Reach what a path from a package's top on means, and all that this leads to."""
        self._follow(path)
        self._drain()

    def add_registered(self) -> None:
        """Reach, too, what a decorator, a base class or a call may have put into something that is reached."""
        led = _Reached(self._own, imports=False)
        before = -1
        while before != (before := sum(map(len, self.statements.values()))):
            made = [
                (module, number, [led._start(module, each) for each in _made_by(statement)])
                for module in self.modules.values()
                for number, statement in enumerate(module.statements)
                if number not in self.statements[module.name]
            ]
            led._drain()
            leading = led._leading_to(self.statements)
            for module, number, starts in made:
                if not leading.isdisjoint(starts):
                    self._statement(module, number)
            self._drain()

    def _start(self, module: Module, path: Names) -> _Step:
        """A step that leads to what a path means in a module, once all waiting ones are taken."""
        start: _Step = ("name", module.name, path)
        self._lead(start, functools.partial(self._name, module, path))
        return start

    def _leading_to(self, statements: Mapping[str, set[int]]) -> set[_Step]:
        """The steps that lead to one of these statements, if that binds what may know of code that is made later."""
        waiting: list[_Step] = [
            ("statement", name, number)
            for name, numbers in self.statements.items()
            for number in numbers.intersection(statements.get(name, ()))
            if _may_hold(self.modules[name].statements[number])
        ]
        found: set[_Step] = set()
        while waiting:
            new = self._from[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    def dumps(self) -> list[tuple[str, list[str], list[str], str]]:
        """The statements of each module: definitions in any order, all others in theirs."""
        found = []
        for name, module in sorted(self.modules.items()):
            statements = [module.statements[each] for each in sorted(self.statements[name])]
            definitions = sorted(_dump(each) for each in statements if _only_defines(each))
            others = [_dump(each) for each in statements if not _only_defines(each)]
            if statements or module.content:
                found.append((name, definitions, others, module.content))
        return found

    def _lead(self, step: _Step, take: Callable[[], object]) -> None:
        """Take a step later, if it is a new one: chains of imports may be longer than Python's stack."""
        if step not in self._from:
            self._waiting.append((step, take))
        self._from[step].add(self._at)

    def _drain(self) -> None:
        while self._waiting:
            self._at, take = self._waiting.popleft()
            take()
        self._at = ()

    def _later(self, call: Callable[[Names], None], path: Names) -> None:
        self._lead((call.__name__, path), functools.partial(call, path))

    def _follow(self, path: Names) -> None:
        if not self._own.has(path[0]):
            self._library(path[0])
            return
        for depth in range(1, len(path) + 1):
            module = self._own.module(path[:depth])
            if module is None:
                return
            self._module(module)
            rest = path[depth:]
            inner = module.is_package and bool(rest) and self._own.module(path[: depth + 1]) is not None
            found = bool(rest) and self._name(module, rest)
            if not found and not inner:
                self._all(module)  # It is handed on as a whole, or what it is asked for is not to be seen in it.
            if not inner:
                return

    def _name(self, module: Module, path: Names, imports: Mapping[str, list[Names]] | None = None) -> bool:
        """Reach what a path means in a module; whether it means anything there."""
        first, *rest = path
        targets = [*(imports or {}).get(first, ()), *module.imports.get(first, ())]
        for target in targets:
            self.imported.add(f"{module.name}:{first} {'.'.join(target)}")
            self._later(self._follow, (*target, *rest))
        for number in module.bound.get(first, ()):
            self._statement(module, number)
        return bool(targets) or first in module.bound

    def _all(self, module: Module) -> None:
        for number in range(len(module.statements)):
            self._statement(module, number)

    def _statement(self, module: Module, number: int) -> None:
        self._module(module)
        self.statements[module.name].add(number)
        self._lead(("statement", module.name, number), functools.partial(self._read, module, module.statements[number]))

    def _read(self, module: Module, statement: ast.stmt) -> None:
        """Reach what a statement names and imports."""
        _strip_docstrings(statement)
        imports = module.imports_of(*ast.walk(statement))
        for path in imports.get("", ()):
            self._later(self._import, path)
        for path in _paths(statement):
            self._name(module, path, imports)
            if path[0] in _ANYTHING:
                self._all(module)

    def _module(self, module: Module) -> None:
        self.modules[module.name] = module
        self._lead(("module", module.name), functools.partial(self._when_imported, module))

    def _when_imported(self, module: Module) -> None:
        """Reach what a module does when it is imported."""
        if self._imports:
            for number in module.does():
                self._statement(module, number)
            for path in module.imports.get("", ()):
                self._later(self._import, path)
        for path in module.imports.get("*", ()):
            self._later(self._follow, path)

    def _import(self, path: Names) -> None:
        for depth in range(1, len(path) + 1) if self._imports and self._own.has(path[0]) else ():
            module = self._own.module(path[:depth])
            if module is None:
                return
            self._module(module)

    def _library(self, package: str) -> None:
        if package in sys.stdlib_module_names:
            self.versions["python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
            return
        for distribution in _distributions().get(package, [package]):
            try:
                self.versions[distribution] = version(distribution)
            except PackageNotFoundError:
                self.versions[package] = package_content(package)


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """The distributions that a package comes from. Looking through all that is installed takes long."""
    return packages_distributions()


def _paths(tree: ast.AST) -> Iterator[Names]:
    """Dotted names that the code reads, as far as they go: `pc.utf8_lower` → ("pc", "utf8_lower")."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        names: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
            inside.add(id(inner))
        if isinstance(inner, ast.Name) and id(node) not in inside:
            yield (inner.id, *reversed(names))


def _dump(value: object) -> str:
    """The text of a tree, the same with each version of Python: what is empty, such as a field of a later one, is left
    out.
    """
    if isinstance(value, list):
        return f"[{','.join(map(_dump, value))}]"
    if isinstance(value, ast.Constant):
        return repr(value.value)
    if not isinstance(value, ast.AST):
        return repr(value)
    if isinstance(value, ast.JoinedStr):  # 3.12 ends some with an empty text.
        value.values = [each for each in value.values if not isinstance(each, ast.Constant) or each.value != ""]
    fields = (f"{name}={_dump(each)}" for name, each in ast.iter_fields(value) if each is not None and each != [])
    return f"{type(value).__name__}({','.join(fields)})"


def _strip_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _made_by(statement: ast.stmt) -> list[Names]:
    """The decorators of a definition and of its methods, its bases, or what another statement calls: these may know of
    it by now.
    """
    made: list[ast.AST] = []
    if not isinstance(statement, DEFINITIONS):
        made += (each.func for each in ast.walk(statement) if isinstance(each, ast.Call))
    for each in _definitions(statement):
        made += each.decorator_list
        if isinstance(each, ast.ClassDef):
            made += [*each.bases, *each.keywords]
    return [path for each in made for path in _paths(each)]


def _definitions(statement: ast.stmt) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The definitions that are made when a module is imported: also in classes and conditions, not in functions."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, DEFINITIONS):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _only_defines(statement: ast.stmt) -> bool:
    return isinstance(statement, DEFINITIONS) and not statement.decorator_list


def _may_hold(statement: ast.stmt) -> bool:
    """Whether what it binds may know of functions or classes that were made later."""
    if isinstance(statement, ast.ClassDef):
        text = ast.dump(statement)
        is_metaclass = any(isinstance(each, ast.Name) and each.id == "type" for each in statement.bases)
        has_values = any(
            isinstance(each, ast.Assign | ast.AnnAssign) and _is_changeable(each.value) for each in statement.body
        )
        return is_metaclass or has_values or any(each in text for each in _SUBCLASSES)
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):  # Such as one of `functools.singledispatch`.
        defaults = (*statement.args.defaults, *statement.args.kw_defaults)
        return bool(statement.decorator_list) or any(map(_is_changeable, defaults))
    return True


def _is_changeable(value: ast.AST | None) -> bool:
    """Whether things may be put into it later: a collection, or what a call gives."""
    return isinstance(value, ast.Dict | ast.List | ast.Set | ast.Call)
