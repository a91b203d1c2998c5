"""What `instep diff` finds in a target, and how it is mended. Inherit `DiffContract`, give it the target's setting."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from instep.answers.answer import as_json
from instep.domain.identity import canonical_uri, content_hash, document_id
from instep.entities.documents.differences import Differences
from tests.e2e import corpus
from tests.jobs.projects import Home
from tests.jobs.tampering import Tamperer, altered, stranger

CLEAN = {"missing": 0, "stale": 0, "orphan": 0, "duplicate": 0}


def seen(place: Home) -> Differences:
    (found,) = place.open().diff()
    assert found.differences is not None
    return found.differences


def identity(place: Home, number: int) -> str:
    return document_id(canonical_uri(place.uri(number)))


def repaired(place: Home) -> None:
    """A job of exactly that, and a diff is clean."""
    (result,) = place.open().repair()
    assert result.problem is None
    assert result.counts.failed == 0
    found = seen(place)
    assert (found.counts, found.differs, found.examples) == (CLEAN, False, [])


class OnTarget:
    """Inherit, and provide `setting`."""

    def setting(self, folder: Path) -> str:
        """The target in the project file."""
        raise NotImplementedError


class DiffContract(OnTarget):
    """The contract of `instep diff`."""

    def lose(self, tamperer: Tamperer) -> None:
        """The whole index."""
        tamperer.target.drop(tamperer.physical)

    @pytest.fixture
    def place(self, tmp_path: Path) -> Home:
        made = Home(tmp_path)
        corpus.write(made.docs, range(8))
        file = corpus.project(tmp_path, made.docs)
        written = file.read_text().replace("{type: lance, uri: .instep/index}", self.setting(tmp_path))
        file.write_text(written)
        made.run()
        return made

    def contents(self, place: Home) -> Counter[str]:
        return Counter(f"{row['document_id']} {row['chunk_id']} {row['chunk_hash']}" for row in Tamperer(place).rows())

    def test_rows_changed_by_others_are_found_and_repaired(self, place: Home) -> None:
        before = self.contents(place)
        assert seen(place).counts == CLEAN
        tamperer = Tamperer(place)
        lost, half, other, more = (identity(place, number) for number in (1, 2, 3, 4))
        tamperer.change(lost, lambda row: [])
        tamperer.change(half, lambda row: [row] if row["chunk_index"] else [])
        tamperer.change(other, lambda row: altered(row) if row["chunk_index"] == 1 else [row])
        more_row = next(row for row in tamperer.rows() if row["document_id"] == more)
        tamperer.add(more_row | {"chunk_id": content_hash(b"more")}, stranger())
        found = seen(place)
        assert found.counts == {"missing": 2, "stale": 1, "orphan": 2, "duplicate": 0}
        kinds = {(each.document.document_id, str(each.document.kind)) for each in found.examples}
        strangers = {("stranger", "orphan"), (more, "orphan")}
        assert kinds == {(lost, "missing"), (half, "missing"), (other, "stale"), *strangers}
        rows = {each.document.document_id: each.document.rows for each in found.examples}
        # Of the one with an altered chunk only that is wrong: the others are what its source says.
        assert (rows[half], rows[more], rows["stranger"], rows[other]) == (1, 1, 1, 1)
        repaired(place)
        assert self.contents(place) == before

    def test_a_deep_comparison_finds_changes_that_hashes_hide(self, place: Home) -> None:
        """Texts, titles and vectors; neither anything else, nor what the source has changed since."""
        (clean,) = place.open().diff(deep=True)
        assert clean.differences is not None
        assert (clean.differences.counts, clean.differences.unread) == ({**CLEAN, "altered": 0}, 0)
        tamperer, (one, lost, changed) = Tamperer(place), (identity(place, number) for number in (1, 2, 3))
        tamperer.change(one, lambda row: [row])  # With the same id and hash; all else is another.
        tamperer.change(lost, lambda row: [row] if row["chunk_index"] else [])
        tamperer.change(changed, lambda row: [row])
        place.change(3, "one line more")
        assert seen(place).counts == {**CLEAN, "missing": 1}
        (found,) = place.open().diff(deep=True)
        assert found.differences is not None
        assert found.differences.counts == {**CLEAN, "missing": 1, "altered": 1}
        rows = sum(row["document_id"] == one for row in tamperer.rows())
        (document,) = (each for each in as_json(found)["documents"] if each["kind"] == "altered")
        assert document["document_id"] == one
        assert [document[name] for name in ("rows", "texts", "titles", "vectors")] == [rows] * 4

    def test_rows_that_are_there_twice(self, place: Home) -> None:
        before = self.contents(place)
        tamperer = Tamperer(place)
        if tamperer.target.kind == "idempotent":
            tamperer.add(*tamperer.rows())  # The same ids once more.
            assert seen(place).counts == CLEAN
            return
        tamperer.change(identity(place, 1), lambda row: [row, row] if row["chunk_index"] == 0 else [row])
        tamperer.change(identity(place, 2), lambda row: [row, row] if row["chunk_index"] == 0 else [])
        assert seen(place).counts == {**CLEAN, "duplicate": 2, "missing": 1}
        repaired(place)
        assert self.contents(place) == before

    def test_an_index_that_is_gone_is_recreated(self, place: Home) -> None:
        before, tamperer = self.contents(place), Tamperer(place)
        self.lose(tamperer)
        assert seen(place).counts == {**CLEAN, "missing": 8}
        repaired(place)
        assert self.contents(place) == before
        assert place.open().search("document 3")

    def test_several_targets_hold_the_same(self, place: Home) -> None:
        file = place.root / "instep.yaml"
        both = file.read_text().replace("targets: {", "targets: {twin: {type: lance, uri: .instep/twin}, ", 1)
        file.write_text(both + "    targets: [index, twin]\n")
        for _ in range(2):
            assert [each.promoted for each in place.open().run()] == [True, True]
            one, two = (Counter(map(str, Tamperer(place, f"Document__{name}").rows())) for name in ("index", "twin"))
            assert one == two != Counter()
            place.change(1, "one line more")
            place.path(2).unlink(missing_ok=True)
        assert [each.differences and each.differences.counts for each in place.open().diff()] == [CLEAN, CLEAN]
