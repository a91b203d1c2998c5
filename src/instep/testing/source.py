"""The contract of sources of yours. Inherit `SourceContract`, make a source, and say how a document gets into it."""

from __future__ import annotations

from typing import Any

from instep.pipeline.documents.function_source import ListFunction, ReadDocument, ReadFunction

#: Ids that a store may have.
IDS = ("one", "folder/two.md", "it's 3", "vier-ä")


class SourceContract:
    """A document is listed once, read as it is, and has another version whenever it has changed, and only then."""

    def make(self) -> Any:
        """A source with the methods `list` and `read`, made as a process makes it: each call makes another one, of the
        same documents.
        """
        raise NotImplementedError

    def put(self, id: str, text: str) -> None:
        """Write a document into what the source reads, or change it."""
        raise NotImplementedError

    def remove(self, id: str) -> None:
        """Take a document out of what the source reads."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        """The versions of all listed documents, by their ids."""
        listing: ListFunction = self.make().list
        listed: list[tuple[Any, Any]] = [(each[0], each[1]) for each in listing()]
        found = dict(listed)
        assert len(found) == len(listed), "a document is listed once"
        assert all(isinstance(each, str) and each for pair in listed for each in pair), "ids and versions are texts"
        return found

    def text(self, id: str) -> str | None:
        reading: ReadFunction = self.make().read
        found = reading(id)
        content = found.content if isinstance(found, ReadDocument) else found
        return content.decode() if isinstance(content, bytes) else content

    def test_what_is_there_is_listed_once_and_read_as_it_is(self) -> None:
        for id in IDS:
            self.put(id, f"The text of {id}.")
        assert set(IDS) <= self.versions().keys()
        for id in IDS:
            assert f"The text of {id}." in (self.text(id) or "")

    def test_what_has_not_changed_has_the_version_that_it_had(self) -> None:
        """Also in another process, and beside a change of another document: else all is read again."""
        for id in IDS:
            self.put(id, "At first.")
        before = self.versions()
        assert self.versions() == before
        self.text(IDS[0])
        self.put(IDS[1], "Then.")
        after = self.versions()
        assert {id: after[id] for id in before if id != IDS[1]} == {id: before[id] for id in before if id != IDS[1]}

    def test_each_change_is_another_version(self) -> None:
        """Also one of the same length, at once after the one before, and back to what was there: else what is indexed
        stays as it was.
        """
        seen, last = set[str](), ""
        for text in ("one two", "two one", "one two three", "six"):
            self.put(IDS[0], text)
            last = self.versions()[IDS[0]]
            assert last not in seen, f"{text!r} has a version that another text had"
            seen.add(last)
        self.put(IDS[0], "one two")
        assert self.versions()[IDS[0]] != last

    def test_a_document_that_is_gone_is_not_listed_and_nothing_is_read(self) -> None:
        for id in IDS[:2]:
            self.put(id, "There.")
        assert set(IDS[:2]) <= self.versions().keys()
        self.remove(IDS[0])
        assert IDS[0] not in self.versions()
        assert self.text(IDS[0]) is None, "it may have gone since it was listed: that is no failure"
        assert IDS[1] in self.versions()

    def test_a_document_that_comes_back_is_listed_again(self) -> None:
        self.put(IDS[0], "There.")
        self.remove(IDS[0])
        self.put(IDS[0], "There again.")
        assert IDS[0] in self.versions()
        assert "There again." in (self.text(IDS[0]) or "")
