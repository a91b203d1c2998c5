"""Code is cut between definitions and statements, in bounded time whatever it is; chunks know what they are in."""

from __future__ import annotations

import pickle
import random
import string
import time
from importlib.metadata import PackageNotFoundError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instep.errors import UserError
from instep.pipeline.documents import syntax
from instep.pipeline.documents.chunk import Chunk, Chunker
from instep.pipeline.documents.parse import Parsed, ParseFailure
from instep.pipeline.documents.places import Heading
from instep.pipeline.documents.syntax import GRAMMARS, Syntax
from instep.pipeline.documents.tokens import Tokens
from tests.documents.chunks import texts_of

SYNTAX = Syntax.installed()
PYTHON = '''import os


class Harbour:
    """A place of ships."""

    def enter(self, ship):
        if ship.draught > self.depth:
            raise ValueError(ship)
        self.ships.append(ship)

    def leave(self, ship):
        self.ships.remove(ship)


async def tide(moon):
    return moon.pull
'''
#: A file of each language, and what is defined in it.
SOURCES = {
    "bash": ("f() { echo 1; }\n", ["f"]),
    "c": ("static char *f(int a) { for (;;) { g(); } }\nstruct s { int a; };\n", ["f", "s"]),
    "cpp": ("namespace n { class A { void f() {} }; }\nint A::g() { return 1; }\n", ["n", "A", "f", "g"]),
    "csharp": ("namespace N { class A { void M() { foreach (var x in y) { z(); } } } }\n", ["N", "A", "M"]),
    "go": ("package p\n\nfunc (t *T) Run(x int) error { return nil }\n\nfunc main() {}\n", ["Run", "main"]),
    "java": ("class A { void m() { for (int x : xs) { y(); } } interface I {} }\n", ["A", "m", "I"]),
    "javascript": (
        "class A { m(x) { return 1 } }\nconst f = (a) => { return a }\nfunction g() {}\n",
        ["A", "m", "f", "g"],
    ),
    "php": ("<?php\nclass A { function m() {} }\n", ["A", "m"]),
    "python": (PYTHON, ["Harbour", "enter", "leave", "tide"]),
    "ruby": ("class A\n  def m\n    1\n  end\nend\n", ["A", "m"]),
    "rust": ("impl Foo for Bar { fn x() { let y: T = |a| { b }; } }\nmod m {}\n", ["Bar", "x", "m"]),
    "scala": ("object A { def f(x: Int) = { x } }\n", ["A", "f"]),
    "tsx": ("export function B() { return <b/>; }\n", ["B"]),
    "typescript": ("interface I { a: string }\nclass B<T> { m(): void {} }\n", ["I", "B", "m"]),
}


def cut(code: str, language: str = "python", size: int = 160, *, tokens: Tokens | None = None) -> list[Chunk]:
    (found,) = Chunker(size, tokens=tokens, syntax=SYNTAX).cut([(language, code)])
    assert not isinstance(found, ParseFailure)
    return found


def test_code_is_cut_between_definitions_and_statements() -> None:
    found = [each.text for each in cut(PYTHON)]
    assert found[0] == "import os"
    assert found[1] == "class Harbour:"
    assert found[-1].startswith("def leave")
    assert texts_of(Chunker(160), ("python", PYTHON)) != [found]


def test_every_grammar_is_there_and_knows_definitions() -> None:
    assert set(SOURCES) == set(GRAMMARS)
    for language, (code, names) in SOURCES.items():
        assert [each.text for each in SYNTAX.definitions(language, code) if each.text] == names, language
        found = cut(code, language, 30)
        assert "".join("".join(each.text for each in found).split()) == "".join(code.split()), language


def test_a_place_is_in_what_is_open_there() -> None:
    chunker = Chunker(160, context=True, syntax=SYNTAX)
    names = chunker.headings(Parsed("python", "harbour.py", "# größe\n" + PYTHON))
    opened: list[str] = []
    for each in names:
        opened = [*opened[: each.level - 1], *([each.text] if each.text else [])]
        if each.text:
            assert ("# größe\n" + PYTHON)[each.at :].startswith(("class " + each.text, "def ", "async def "))
    code = "@lit\nclass A: pass\n"
    assert list(SYNTAX.definitions("python", code)) == [Heading(0, 1, "A"), Heading(len(code) - 1, 1, "")]
    assert opened == [], "all that is opened is closed"
    assert chunker.headings(Parsed("text", "a.txt", PYTHON)) == ()


@given(
    st.lists(st.sampled_from(["def f(a):\n", "    x = {1: [2]}\n", "class A:\n", ")\n", '"""\n', "é = 1\n", "\n"])),
    st.integers(1, 60),
    st.sampled_from(["python", "javascript", "go"]),
)
@settings(max_examples=200)
def test_nothing_is_lost_of_any_code_and_no_chunk_is_too_long(lines: list[str], size: int, language: str) -> None:
    code = "".join(lines)
    found = cut(code, language, size)
    assert all(0 < len(chunk) <= size for chunk, _ in found)
    assert all(at is not None and code[at:].startswith(chunk) for chunk, at in found)
    assert "".join("".join(chunk for chunk, _ in found).split()) == "".join(code.split())
    ends = [each.at for each in SYNTAX.definitions(language, code)]
    assert ends == sorted(ends)


def test_sizes_may_be_in_tokens() -> None:
    found = cut(PYTHON, size=40, tokens=Tokens("static"))
    assert "".join("".join(chunk for chunk, _ in found).split()) == "".join(PYTHON.split())
    assert 3 <= len(found) < len(cut(PYTHON, size=40))


def minified(count: int) -> str:
    draw = random.Random(1)
    return ";".join(
        f"function {draw.choice(string.ascii_letters)}{at}(a,b){{var c=a+b*{at};for(var d=0;d<c;d++){{e(d,[a,b])}}}}"
        for at in range(count)
    )


@pytest.mark.parametrize(
    ("name", "language", "code"),
    [
        ("brackets", "javascript", "[" * 10_000),
        ("blocks", "javascript", "{" * 10_000 + "}" * 10_000),
        ("functions in functions", "javascript", "function f(){\n" * 10_000 + "}\n" * 10_000),
        ("calls of calls", "javascript", "f(" * 10_000 + ")" * 10_000),
        ("ifs", "javascript", "if(a)" * 10_000),
        ("a long sum", "python", "x = " + "a+" * 20_000 + "a\n"),
        ("no code at all", "javascript", "".join(random.Random(2).choices("){](;'\"`/*\n<>=a ", k=100_000))),
        ("5 MB on one line", "javascript", minified(65_000)),
    ],
)
def test_odd_code_is_cut_in_linear_time(name: str, language: str, code: str) -> None:
    start = time.process_time()
    found = cut(code, language, 800)
    assert time.process_time() - start < 60
    assert max(len(each.text) for each in found) <= 800
    assert "".join("".join(each.text for each in found).split()) == "".join(code.split())


@pytest.mark.parametrize("code", ["[{" * 200_000, "function f(){" * 20_000, minified(5_000)])
def test_definitions_are_found_in_linear_time(code: str) -> None:
    start = time.process_time()
    assert len(list(SYNTAX.definitions("javascript", code))) in (0, 10_000)
    assert time.process_time() - start < 20


def test_another_grammar_is_another_fingerprint() -> None:
    newer = Syntax((("tree-sitter", "9.9"), *SYNTAX.versions[1:]))
    prints = {Chunker(syntax=each).fingerprint for each in (None, SYNTAX, newer)}
    assert len(prints) == 3
    assert Chunker(syntax=pickle.loads(pickle.dumps(SYNTAX))).fingerprint in prints


def test_where_other_grammars_are_installed_nothing_is_cut() -> None:
    """On an executor, say."""
    others = Syntax(tuple((name, "0.1") for name, _ in SYNTAX.versions))
    with pytest.raises(UserError, match=r"tree-sitter 0\.1 was there when the work was planned, and here is"):
        Chunker(20, syntax=others).cut([("python", PYTHON)])


def test_the_project_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(syntax, "version", missing)
    with pytest.raises(UserError, match="needs the package tree-sitter") as caught:
        Syntax.installed()
    assert caught.value.hint == "pip install 'instep[code]'"
