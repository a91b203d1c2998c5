"""The contract suites of sources and embedders pass those that are right, and find what is wrong with the others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = '''
import hashlib
import itertools
from pathlib import Path

import pytest

from instep import ListedDocument
from instep.testing.source import SourceContract


class Notes:
    """Files whose names are ids in hex; each change is one more line."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def list(self):
        for file in sorted(self.folder.iterdir()):
            yield ListedDocument(bytes.fromhex(file.name).decode(), self.version(file))

    def version(self, file):
        return str(len(file.read_text().splitlines()))

    def read(self, id):
        file = self.folder / id.encode().hex()
        return file.read_text().splitlines()[-1] if file.exists() else None


class SameVersions(Notes):
    def version(self, file):
        return "1"


class VersionsOfLength(Notes):
    def version(self, file):
        return str(len(file.read_text().splitlines()[-1]))


class VersionsOfContent(Notes):
    """Right: a text that comes back has a version that it had, and no other one in between."""

    def version(self, file):
        return hashlib.sha256(file.read_text().splitlines()[-1].encode()).hexdigest()


class VersionsOfTheClock(Notes):
    ticks = itertools.count()

    def version(self, file):
        return str(next(self.ticks))


class ListsTwice(Notes):
    def list(self):
        return [*super().list(), *super().list()]


class ListsNumbers(Notes):
    def version(self, file):
        return len(file.read_text().splitlines())


class RaisesForTheGone(Notes):
    def read(self, id):
        return (self.folder / id.encode().hex()).read_text().splitlines()[-1]


class ListsTheGone(Notes):
    def __init__(self, folder):
        super().__init__(folder)

    def list(self):
        seen = Path(f"{self.folder}.seen")
        ids = {*(seen.read_text().splitlines() if seen.exists() else ()), *(each.id for each in super().list())}
        seen.write_text("\\n".join(ids))
        return [ListedDocument(each, "1") for each in ids]


class ReadsTheFirst(Notes):
    def read(self, id):
        return min(self.folder.iterdir()).read_text().splitlines()[-1] if any(self.folder.iterdir()) else None


class Contract(SourceContract):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.folder = tmp_path / "notes"
        self.folder.mkdir()

    def make(self):
        return self.made(self.folder)

    def put(self, id, text):
        with (self.folder / id.encode().hex()).open("a") as file:
            file.write(text + "\\n")

    def remove(self, id):
        (self.folder / id.encode().hex()).unlink()


for made in (Notes, *Notes.__subclasses__()):
    globals()["Test" + made.__name__] = type("Test" + made.__name__, (Contract,), {"made": made})
'''
EMBEDDERS = '''
import hashlib
import random
import threading
import time

import numpy as np
import pytest

from instep.testing.embedder import EmbedderContract


def vector(text):
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], np.uint8).astype(np.float32) - 127.5


class Right:
    def __call__(self, texts):
        return np.stack([vector(each) for each in texts])


class GivesLists(Right):
    """Right, too."""

    def __call__(self, texts):
        return super().__call__(texts).tolist()


class Sorts(Right):
    def __call__(self, texts):
        return super().__call__(sorted(texts))


class SortsInPlace(Right):
    def __call__(self, texts):
        found = super().__call__(texts)
        texts.sort()
        return found


class LeavesOutDoubles(Right):
    def __call__(self, texts):
        return super().__call__(list(dict.fromkeys(texts)))


class IsRandom(Right):
    def __call__(self, texts):
        return super().__call__(texts) + random.random() * 10


class DependsOnItsCompany(Right):
    def __call__(self, texts):
        found = super().__call__(texts)
        return found - found.mean(axis=0)


class GivesOneForAll(Right):
    def __call__(self, texts):
        return super().__call__(["all"] * len(texts))


class GivesZeroForTheUnknown(Right):
    def __call__(self, texts):
        return np.stack([vector(each) * (each.isascii()) for each in texts])


class GivesNaNForTheLong(Right):
    def __call__(self, texts):
        return np.stack([vector(each) * (np.nan if len(each) > 10_000 else 1) for each in texts])


class TakesAHundred(Right):
    def __call__(self, texts):
        return super().__call__(texts[:100])


class IsLonger(Right):
    def __call__(self, texts):
        found = super().__call__(texts)
        return np.concatenate([found, found], axis=1)


class SharesItsBuffer(Right):
    texts = None

    def __call__(self, texts):
        self.texts = texts
        time.sleep(0.002)
        return super().__call__(self.texts)


class Contract(EmbedderContract):
    dimensions = 16

    @pytest.fixture
    def embed(self):
        return self.made()


for made in (Right, *Right.__subclasses__()):
    globals()["Test" + made.__name__] = type("Test" + made.__name__, (Contract,), {"made": made})
'''
SAME, OTHER = "what_has_not_changed_has_the_version_that_it_had", "each_change_is_another_version"
GONE, THERE = (
    "a_document_that_is_gone_is_not_listed_and_nothing_is_read",
    "what_is_there_is_listed_once_and_read_as_it_is",
)
ALONE, USE = "a_text_has_the_same_vector_alone_and_among_others", "each_text_has_a_vector_that_is_of_use"
MANY, TWICE = "as_many_texts_as_there_are_in_a_call", "the_same_text_twice_has_two_vectors"
FOUND = {
    SOURCES: {
        "Notes": None,
        "VersionsOfContent": None,
        "SameVersions": OTHER,
        "VersionsOfLength": OTHER,
        "VersionsOfTheClock": SAME,
        "ListsTwice": THERE,
        "ListsNumbers": THERE,
        "RaisesForTheGone": GONE,
        "ListsTheGone": GONE,
        "ReadsTheFirst": THERE,
    },
    EMBEDDERS: {
        "Right": None,
        "GivesLists": None,
        "Sorts": ALONE,
        "SortsInPlace": "the_texts_stay_as_they_are",
        "LeavesOutDoubles": TWICE,
        "IsRandom": ALONE,
        "DependsOnItsCompany": ALONE,
        "GivesOneForAll": TWICE,
        "GivesZeroForTheUnknown": USE,
        "GivesNaNForTheLong": USE,
        "TakesAHundred": MANY,
        "IsLonger": USE,
        "SharesItsBuffer": "tasks_call_it_at_the_same_time",
    },
}


@pytest.mark.parametrize("suite", [*FOUND], ids=["sources", "embedders"])
def test_what_is_wrong_is_found_and_what_is_right_passes(tmp_path: Path, suite: str) -> None:
    (tmp_path / "test_suite.py").write_text(suite)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "test_suite.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    failed: dict[str, set[str]] = {name: set() for name in FOUND[suite]}
    for name, test in re.findall(r"^FAILED test_suite.py::Test(\w+)::test_(\w+)", done.stdout, re.MULTILINE):
        failed[name].add(test)
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    assert "warning" not in done.stdout.splitlines()[-1], done.stdout[-3000:]
    for name, test in FOUND[suite].items():
        assert (test in failed[name]) if test else not failed[name], (name, failed[name])
