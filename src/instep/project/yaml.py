"""Reads YAML into plain data, with the line of every key and value, and `${ENV}` filled in.

What differs from PyYAML's defaults: duplicate keys are errors; only `true` and `false` are
booleans, so that `on`, `no` and `yes` stay text; there are no dates, octal or base-60 numbers;
keys are always text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

Path = tuple[str | int, ...]

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_INSIDE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)

#: Values of a file, those of aliases at each of their places: ten short lines can stand for as many as fill the memory.
_MOST, _MOST_OF_A_CHARACTER = 100_000, 10


class YamlProblem(Exception):
    """One line of text about one line of the file (from 1)."""

    def __init__(self, message: str, line: int, path: Path = (), hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.path = path
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Document:
    """`data` is plain; `lines` has the line of each key and list item by its path; `written` has the
    text as it stands in the file for values that came from the environment, and `filled` these values, with each
    `${…}` in them.
    """

    data: Any
    lines: Mapping[Path, int]
    written: Mapping[Path, str]
    filled: Collection[str] = ()


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars as YAML 1.2 does."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - how PyYAML is told


for _tag, _pattern, _first in (
    ("bool", r"(true|True|TRUE|false|False|FALSE)\Z", "tTfF"),
    ("null", r"(~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)\Z", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?\Z|[-+]?[0-9]+[eE][-+]?[0-9]+\Z", "-+.0123456789"),
    ("merge", r"<<\Z", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


@lru_cache(maxsize=8)
def _composed(text: str) -> yaml.Node | None:
    """The nodes of a text, parsed once: a process that loads its project again finds the same text."""
    return _Loader(text).get_single_node()


def read_yaml(text: str, environment: Mapping[str, str]) -> Document:
    """Parse one YAML document. Raises `YamlProblem`; its message never holds a value of `environment`."""
    try:
        node = _composed(text)
        if node is None:
            raise YamlProblem("the file is empty", 1)
        walk = _Walk(environment, _MOST + _MOST_OF_A_CHARACTER * len(text))
        data = walk.value(node, ())
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise YamlProblem("a character that YAML does not allow", line) from None
    except yaml.MarkedYAMLError as error:
        raise _plain(error, text) from None
    except RecursionError:
        raise YamlProblem("nested too deeply", 1) from None
    return Document(data, walk.lines, walk.written, walk.filled)


def _plain(error: yaml.MarkedYAMLError, text: str) -> YamlProblem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    message = (error.problem or "cannot be parsed").replace("\\t", "tab")
    lines = text.splitlines()
    here = lines[line - 1] if line <= len(lines) else ""
    hint = None
    opened = error.context_mark  # A brace that is not closed is noticed far below it.
    if opened and opened.line + 1 < line and "flow" in (error.context or ""):
        hint = f"Close the {{ or [ that is open in line {opened.line + 1}."
    if "tab" in message:
        message, hint = "a tab where YAML wants spaces", "Indent with spaces."
    elif "${" in here and re.search(r"[{\[].*\$\{", here):
        hint = 'Inside { } and [ ], put ${…} in quotes: "${NAME}".'
    if "single document" in (error.context or ""):
        message = "a second document (`---`) begins; the project is one document"
    return YamlProblem(f"not valid YAML: {message}", line, hint=hint)


def fill_in(text: str, environment: Mapping[str, str]) -> str:
    """Replace `${NAME}` and `${NAME:-default}`; `$${` stands for `${`.

    The default holds when the variable is unset or empty. Raises `ValueError`, which never
    repeats the text itself.
    """

    def one(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        inside = _INSIDE.match(match[1])
        if inside is None or not match[2]:
            raise ValueError("a malformed ${…}: write ${NAME}, ${NAME:-default}, or $${ for a plain ${")
        name, default = inside[1], inside[2]
        value = environment.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise ValueError(f"the environment variable {name} is not set")
        return value

    return _VARIABLE.sub(one, text)


def variables(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The values that `fill_in` would put for each `${NAME}` and `${NAME:-default}` in a text, by name."""
    found = {}
    for match in _VARIABLE.finditer(text):
        inside = _INSIDE.match(match[1] or "")
        if inside is not None and match[2]:
            found[inside[1]] = environment.get(inside[1]) or inside[2] or ""
    return found


@dataclass(slots=True)
class _Walk:
    """Turns nodes into data."""

    environment: Mapping[str, str]
    most: int
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    filled: set[str] = field(default_factory=set)
    inside: list[yaml.Node] = field(default_factory=list)

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.lines.setdefault(path, _line(node))
        if len(self.lines) > self.most:
            raise YamlProblem(f"aliases expand to more than {self.most:,} values of the file", _line(node), path)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        if node.tag not in _COLLECTIONS:
            raise YamlProblem("a tag (!…) that does not fit here", _line(node), path)
        if any(node is outer for outer in self.inside):
            raise YamlProblem("an alias that contains itself", _line(node), path)
        self.inside.append(node)
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            assert isinstance(node, yaml.MappingNode)
            return self.mapping(node, path)
        finally:
            self.inside.pop()

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        key_lines: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            line = _line(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlProblem("a key must be plain text", line, path)
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                continue
            key = str(key_node.value)
            if key in key_lines:
                raise YamlProblem(f"duplicate key {key!r}: also on line {key_lines[key]}", line, (*path, key))
            key_lines[key] = line
            self.lines.setdefault((*path, key), line)
            found[key] = self.value(value_node, (*path, key))
        for each in merged:
            if not isinstance(each, yaml.MappingNode):
                raise YamlProblem("`<<` takes a mapping", _line(each), path)
            for key, inherited in self.value(each, path).items():
                found.setdefault(key, inherited)
        return found

    def scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        kind, text = node.tag.removeprefix("tag:yaml.org,2002:"), str(node.value)
        if kind == "str":
            if "${" not in text:
                return text
            try:
                filled = fill_in(text, self.environment)
            except ValueError as error:
                raise YamlProblem(str(error), _line(node), path) from None
            self.written[path] = text
            self.filled |= {filled, *variables(text, self.environment).values()}
            return filled
        try:
            return _CONSTRUCT[kind](text)
        except (KeyError, ValueError):
            raise YamlProblem("a tag (!…) that does not fit here", _line(node), path) from None


_CONSTRUCT: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "null": lambda _: None,
    "int": int,
    "float": float,
    "merge": str,
}

_COLLECTIONS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
