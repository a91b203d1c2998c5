"""Chunks keep their rows as long as their texts are there. Inherit `ChunkIdentityContract`, give it the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.contracts.document_diff import CLEAN, OnTarget, seen
from tests.jobs.projects import Home
from tests.jobs.tampering import Tamperer

_ANIMALS = ("okapi", "zebra", "giraffe", "lion", "tiger", "heron", "otter", "badger") * 2
#: Each is a chunk of its own.
PARAGRAPHS = [f"Paragraph {number} is about the {each}, and nothing else." for number, each in enumerate(_ANIMALS)]
FRONT = "A paragraph that was put there is about the wolf."
PROJECT = """\
name: chunks
engine: inline
targets: {{index: {setting}}}
entities:
  Document:
    source: {{type: files, path: docs, include: ["*.txt"]}}
    chunk: {{size: 60}}
    embed: {{type: hashing, dimensions: 16}}
"""


class ChunkIdentityContract(OnTarget):
    """What is written when paragraphs come, go and move."""

    @pytest.fixture
    def paragraphs(self, tmp_path: Path) -> Home:
        (tmp_path / "docs").mkdir()
        (tmp_path / "instep.yaml").write_text(PROJECT.format(setting=self.setting(tmp_path)))
        made = Home(tmp_path)
        self.write(made, PARAGRAPHS)
        assert made.run().counts.rows_written == len(PARAGRAPHS)
        return made

    def write(self, place: Home, paragraphs: Sequence[str]) -> None:
        (place.docs / "one.txt").write_text("\n\n".join(paragraphs) + "\n")

    def rows(self, place: Home) -> dict[str, tuple[int, str, int]]:
        """Of each row its place, its text, and the epoch that wrote it."""
        tamperer = Tamperer(place)
        found = tamperer.rows()
        written = tamperer.target.written(tamperer.physical, [found[0]["document_id"]])
        texts = dict(zip(written["chunk_id"].to_pylist(), written["text"].to_pylist(), strict=True))
        stored = {each["chunk_id"]: tamperer.target.row(tamperer.physical, each["chunk_id"]) for each in found}
        return {id: (row.chunk_index, str(texts[id]), row.version) for id, row in stored.items() if row is not None}

    def changed(self, place: Home, paragraphs: Sequence[str]) -> tuple[int, int]:
        """Number of rows that a run writes, and of rows that stay as they are."""
        before = self.rows(place)
        self.write(place, paragraphs)
        written = place.run().counts.rows_written
        after = self.rows(place)
        assert [text for _, text, _ in sorted(after.values())] == list(paragraphs)
        assert seen(place).counts == CLEAN
        return written, sum(before.get(each) == row for each, row in after.items())

    def test_a_new_document_is_numbered_from_nought(self, paragraphs: Home) -> None:
        assert sorted(place for place, _, _ in self.rows(paragraphs).values()) == [*range(len(PARAGRAPHS))]

    def test_a_paragraph_in_front_leaves_all_rows_alone(self, paragraphs: Home) -> None:
        assert self.changed(paragraphs, [FRONT, *PARAGRAPHS]) == (1, 16)
        assert min(place for place, _, _ in self.rows(paragraphs).values()) == -1
        assert self.changed(paragraphs, PARAGRAPHS) == (0, 16)

    def test_a_paragraph_at_the_end_or_in_place_of_another_is_one_row(self, paragraphs: Home) -> None:
        assert self.changed(paragraphs, [*PARAGRAPHS, FRONT]) == (1, 16)
        assert self.changed(paragraphs, [*PARAGRAPHS[:5], f"Again: {FRONT}", *PARAGRAPHS[6:], FRONT]) == (1, 16)

    def test_one_that_is_taken_out_writes_nothing_and_leaves_room(self, paragraphs: Home) -> None:
        assert self.changed(paragraphs, [*PARAGRAPHS[:5], *PARAGRAPHS[6:]]) == (0, 15)
        assert self.changed(paragraphs, [*PARAGRAPHS[:5], FRONT, *PARAGRAPHS[6:]]) == (1, 15)

    def test_one_in_the_middle_moves_the_shorter_part(self, paragraphs: Home) -> None:
        assert self.changed(paragraphs, [*PARAGRAPHS[:4], FRONT, *PARAGRAPHS[4:]]) == (5, 12)
        assert paragraphs.open().search(PARAGRAPHS[1], mode="vector", limit=1)[0].text == PARAGRAPHS[1]

    def test_one_that_moves_is_told_anew_alone(self, paragraphs: Home) -> None:
        assert self.changed(paragraphs, [*PARAGRAPHS[1:], PARAGRAPHS[0]]) == (1, 15)

    def test_equal_paragraphs_are_told_apart(self, paragraphs: Home) -> None:
        assert self.changed(paragraphs, [*PARAGRAPHS, PARAGRAPHS[0], PARAGRAPHS[0]]) == (2, 16)
        assert self.changed(paragraphs, [*PARAGRAPHS, PARAGRAPHS[0]]) == (0, 17)
