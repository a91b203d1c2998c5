"""Fingerprints: each part moves when its own thing changes, and only then."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from instep.domain.fingerprint import changed_parts
from instep.domain.identity import chunk_id, content_hash, document_id
from instep.domain.texts import cleaned
from instep.errors import UserError
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.embed.hashing import HashingEmbedder
from instep.pipeline.documents.embed.sentence_transformers import SentenceTransformersEmbedder
from instep.pipeline.documents.fingerprint import (
    ROWS,
    code_fingerprint,
    fingerprint,
    loaded_fingerprint,
)
from instep.pipeline.documents.functions import OwnFunction
from instep.pipeline.loading import load_transform
from instep.targets.document_target import row_schema

MAIN = '''
import json
import yaml
from shop import words
from shop.words import LIMIT, Cleaner

def clean(frame):
    """Cleans."""
    def inner(value):
        return words.shorten(value, LIMIT)
    return inner(frame), Cleaner().run, yaml.safe_load, json.dumps

def unrelated():
    return 1
'''
WORDS = """
import re
LIMIT = 10
def shorten(value, limit):
    return _cut(value)[:limit]
def _cut(value):
    return re.sub("x", "y", value)
def unused():
    return 1
class Cleaner:
    def run(self):
        return 2
"""


class Package:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "shop"
        self.folder.mkdir()
        (self.folder / "__init__.py").touch()

    def fingerprint(self, main: str = MAIN, words: str = WORDS) -> str:
        """Of `shop.main:clean` in a process that has just imported it."""
        (self.folder / "main.py").write_text(main)
        (self.folder / "words.py").write_text(words)
        forget()
        return code_fingerprint(load_transform("shop.main:clean"))


def forget() -> None:
    import linecache

    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    linecache.clearcache()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Package(tmp_path)
    forget()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return inner(frame)", "return inner(inner(frame))"),
        ("import yaml", "import pydantic as yaml"),
    ],
)
def test_the_functions_own_code_counts(package: Package, old: str, new: str) -> None:
    assert package.fingerprint() != package.fingerprint(main=MAIN.replace(old, new))


def test_loaded_code_keeps_its_fingerprint_though_its_file_changes(package: Package) -> None:
    before = package.fingerprint()
    assert loaded_fingerprint(load_transform("shop.main:clean")) == before
    (package.folder / "main.py").write_text(MAIN.replace("return inner(frame)", "return inner(inner(frame))"))
    assert code_fingerprint(load_transform("shop.main:clean")) != before
    assert loaded_fingerprint(load_transform("shop.main:clean")) == before
    forget()
    assert loaded_fingerprint(load_transform("shop.main:clean")) != before


def upgrade(monkeypatch: pytest.MonkeyPatch, distribution: str) -> None:
    """Another version of it is installed from now on."""
    monkeypatch.setattr(
        "instep.pipeline.documents.fingerprint.version",
        lambda name: "99" if name.lower() == distribution else version(name),
    )


def test_the_versions_of_the_libraries_that_a_function_names_count(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = package.fingerprint()
    upgrade(monkeypatch, "pyyaml")
    assert package.fingerprint() != before


def test_the_version_of_a_functions_own_distribution_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = OwnFunction.of("yaml:safe_load", "parse.function").code
    upgrade(monkeypatch, "pyyaml")
    assert OwnFunction.of("yaml:safe_load", "parse.function").code != before


@pytest.mark.parametrize(
    ("old", "new"), [('"x", "y"', '"x", "z"'), ("[:limit]", "[limit:]"), ("LIMIT = 10", "LIMIT = 11"), ("2", "3")]
)
def test_helpers_in_the_same_package_count_however_deep(package: Package, old: str, new: str) -> None:
    assert package.fingerprint() != package.fingerprint(words=WORDS.replace(old, new))


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (MAIN.replace("Cleans.", "Cleans well."), WORDS),
        (MAIN.replace("    def inner", "    # why\n\n    def inner"), WORDS),
        (MAIN.replace("return 1", "return 2"), WORDS),
        (MAIN, WORDS.replace("return 1", "return 5")),
    ],
    ids=["docstring", "comment", "unrelated", "unused helper"],
)
def test_code_that_is_not_called_does_not_change_the_fingerprint(package: Package, main: str, words: str) -> None:
    assert package.fingerprint() == package.fingerprint(main, words)


def test_a_function_that_calls_itself_or_has_no_source_is_no_endless_tale(package: Package) -> None:
    loop = "def clean(frame):\n    return other(frame)\ndef other(frame):\n    return clean(frame)\n"
    assert package.fingerprint(main=loop)
    assert code_fingerprint(eval("lambda frame: frame"))


@pytest.mark.parametrize("name", ["no.such.package:clean", "shop.main:missing", "shop.main:LIMIT"])
def test_a_transform_that_is_not_there_is_the_users_error(package: Package, name: str) -> None:
    package.fingerprint()
    with pytest.raises(UserError):
        load_transform(name)


def test_each_part_follows_its_own_setting() -> None:
    base = fingerprint(chunker=Chunker(), embedder=HashingEmbedder(8), parser="p")
    assert sorted(base) == ["chunker", "embedder", "parser", "schema", "words"]
    longer = fingerprint(chunker=Chunker(900), embedder=HashingEmbedder(8), parser="p")
    assert changed_parts(longer, base) == ["chunker"]
    wider = fingerprint(chunker=Chunker(), embedder=HashingEmbedder(9), parser="p")
    assert changed_parts(wider, base) == ["embedder", "schema"]
    shaped = fingerprint(chunker=Chunker(), embedder=HashingEmbedder(8), parser="p", transform=cleaned)
    assert changed_parts(shaped, base) == ["transform"]


def test_the_schema_in_words_is_that_of_the_rows() -> None:
    schema = row_schema(8)
    kinds = [str(each.type) if each.name != "vector" else "float32[]" for each in schema]
    words = [f"{each.name}:{kind}{'?' * each.nullable}" for each, kind in zip(schema, kinds, strict=True)]
    assert " ".join(words) == ROWS


def test_golden_ids() -> None:
    document = document_id("file:///docs/a.md")
    assert document == "doc_461bbb6eb236b44c233629ff66cd876a4b27d9e8f7ef7680ce24a89e785af2a1"
    assert (
        chunk_id(document, content_hash(b"text")) == "c14e7c0d3be9c66573427aa6be8f210ce8bf0f6d6e849ca4df520e77bd99cca3"
    )


def test_without_the_extra_a_model_asks_for_it() -> None:
    embedder = SentenceTransformersEmbedder("some-model", 384)
    assert embedder.cached
    assert embedder.fingerprint != SentenceTransformersEmbedder("other-model", 384).fingerprint
    if find_spec("sentence_transformers") is None:
        with pytest.raises(UserError, match=r"instep\[sentence-transformers\]"):
            embedder.embed(["text"])


@pytest.mark.parametrize(
    "text",
    [
        "GET https://user:hunter2@host/path failed",
        "GET https://host/path?X-Signature=hunter2 failed",
        "Authorization: Bearer hunter2hunter2",
        "api_key=hunter2",
        '{"password": "hunter2"}',
        "Incorrect API key: sk-hunter2hunter2",
    ],
)
def test_reasons_hold_no_secrets(text: str) -> None:
    assert "hunter2" not in cleaned(text)


def test_reasons_are_short_and_one_line() -> None:
    assert cleaned("a\n  b\tc") == "a b c"
    assert len(cleaned("word " * 1_000)) == 300
    assert cleaned("lone \ud800").encode() == b"lone ?"
    assert cleaned("nul \0") == "nul ?"
