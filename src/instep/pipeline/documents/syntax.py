"""Source code cut along its syntax: grammars of tree-sitter, and the definitions that a place in code is in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from instep.domain.fingerprint import digest
from instep.errors import UserError
from instep.pipeline.documents.places import Heading, heading_text

#: Language (the kind of a document, as the parser says it) → its distribution, and the function that has its grammar.
GRAMMARS: Final = {
    **{
        language: (f"tree-sitter-{language}", "language")
        for language in ("bash", "c", "cpp", "go", "java", "javascript", "python", "ruby", "rust", "scala")
    },
    "csharp": ("tree-sitter-c-sharp", "language"),
    "php": ("tree-sitter-php", "language_php"),
    "typescript": ("tree-sitter-typescript", "language_typescript"),
    "tsx": ("tree-sitter-typescript", "language_tsx"),
}
_PARSER: Final = "tree-sitter"
#: Raised whenever code would be cut otherwise by the same grammars.
RULES: Final = "syntax-1"
#: The splitter's time grows with the square of the depth of what it cuts: what is nested more deeply is cut as text.
DEEPEST: Final = 100
#: A definition begins with what is around it of these, such as `export`, `const` or a decorator.
_WRAPPERS: Final = frozenset(
    (
        *("decorated_definition", "export_statement", "lexical_declaration", "template_declaration"),
        *("variable_declaration", "local_variable_declaration", "field_declaration"),
    )
)


@dataclass(frozen=True)
class Syntax:
    """The grammars by which code is cut: distributions and their versions, the same wherever a wave runs."""

    versions: tuple[tuple[str, str], ...]

    @classmethod
    def installed(cls) -> Syntax:
        """Raises `UserError` if one is missing."""
        names = sorted({_PARSER, *(name for name, _ in GRAMMARS.values())})
        try:
            return cls(tuple((name, version(name)) for name in names))
        except PackageNotFoundError as error:
            raise UserError(
                f"it needs the package {error.name}, which is not installed",
                where="chunk.code: syntax",
                hint="pip install 'instep[code]'",
            ) from None

    @property
    def fingerprint(self) -> str:
        """Another one with other versions of the grammars."""
        return digest([RULES, DEEPEST, self.versions])

    @property
    def text(self) -> str:
        """The languages that are cut by it."""
        return f"by syntax: {', '.join(sorted(GRAMMARS))}"

    def splitter_class(self, language: str) -> Any:
        """A class of splitters (of semantic-text-splitter) of code in a language."""
        return _CodeSplitter(self._grammar(language))

    def reads(self, language: str, code: str) -> bool:
        """Whether code is cut by its syntax: not if it is nested too deeply."""
        return all(depth <= DEEPEST for _, depth in _nodes(self._tree(language, code.encode())))

    def definitions(self, language: str, code: str) -> Iterator[Heading]:
        """The names of classes, functions and the like, each where it begins; one without text where it ends. None of
        what is nested too deeply.
        """
        data = code.encode()
        place = _Characters(data)
        open_: list[int] = []
        for start, end, name in _definitions(self._tree(language, data)):
            while open_ and open_[-1] <= start:
                yield Heading(place.of(open_[-1]), len(open_), "")
                open_.pop()
            open_.append(end)
            yield Heading(place.of(start), len(open_), heading_text(data[name].decode()))
        while open_:
            yield Heading(place.of(open_[-1]), len(open_), "")
            open_.pop()

    def _tree(self, language: str, data: bytes) -> Any:
        from tree_sitter import Language, Parser

        return Parser(Language(self._grammar(language))).parse(data)

    def _grammar(self, language: str) -> Any:
        return _grammar(language, self.versions)


class _Characters:
    """Places in bytes of UTF-8, asked for in ascending order, as places in their text."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._byte = self._character = 0

    def of(self, byte: int) -> int:
        self._character += len(self._data[self._byte : byte].decode())
        self._byte = byte
        return self._character


@dataclass(frozen=True)
class _CodeSplitter:
    """Makes splitters of code in a language, in the ways in which those of text are made."""

    grammar: Any

    def __call__(self, *how: Any) -> Any:
        from semantic_text_splitter import CodeSplitter

        return CodeSplitter(self.grammar, *how)

    def __getattr__(self, name: str) -> Any:
        from semantic_text_splitter import CodeSplitter

        return partial(getattr(CodeSplitter, name), self.grammar)


@cache
def _grammar(language: str, versions: tuple[tuple[str, str], ...]) -> Any:
    """Raises `UserError` where other packages are installed than where the wave was planned."""
    distribution, function = GRAMMARS[language]
    for name, planned in versions:
        if name in (_PARSER, distribution) and (here := _version(name)) != planned:
            raise UserError(
                f"{name} {planned} was there when the work was planned, and here is {here or 'none'}",
                where="chunk.code: syntax",
                hint="Install the same 'instep[code]' wherever Instep runs, on Spark's executors too.",
            )
    return getattr(import_module(distribution.replace("-", "_")), function)()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _nodes(tree: Any) -> Iterator[tuple[Any, int]]:
    """The nodes of a tree in the order of their text, each with its depth."""
    cursor = tree.walk()
    while True:
        yield cursor.node, cursor.depth
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return


def _definitions(tree: Any) -> list[tuple[int, int, slice]]:
    """List the places of all definitions, and of their names; none if the tree is too deep."""
    found = []
    around: list[Any] = []
    for node, depth in _nodes(tree):
        if depth > DEEPEST:
            return []
        around[depth:] = [node]
        if node.child_count > 1 and node.is_named and (name := _name(node)) is not None:
            outer = depth
            while outer and around[outer - 1].type in _WRAPPERS:
                outer -= 1
            found.append((around[outer].start_byte, node.end_byte, slice(name.start_byte, name.end_byte)))
    return found


def _name(node: Any) -> Any:
    """The node that names what another one defines: it has a body, or its value has. A loop has both, too."""
    holder = node if node.child_by_field_name("body") else node.child_by_field_name("value")
    if holder is None or node.type.endswith("_statement") or not holder.child_by_field_name("body"):
        return None
    if node.type == "impl_item":  # Of Rust.
        return node.child_by_field_name("type")
    while (inner := node.child_by_field_name("name") or node.child_by_field_name("declarator")) is not None:
        node = inner
    return node if node.child_count == 0 else None
