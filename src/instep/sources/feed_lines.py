"""Lines of change feeds: what each says of its document. The format of Instep's own, and what all formats answer."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

import msgspec

from instep.domain.identity import IdentityError, canonical_uri
from instep.domain.storable import is_storable, storable_version

SCHEME: Final = "feed://"
_SAFE: Final = ":"
#: Most ids are in a URI as they are: this is seen sooner than they are quoted.
_UNQUOTED: Final = re.compile(r"[\w.~:-]+", re.ASCII).fullmatch


class Malformed(ValueError):
    """A line that says nothing of any document that could be told. The message repeats none of it."""


class Told(msgspec.Struct, frozen=True, gc=False):
    """The meaning of a line for its document: which version is put, or (None) that it is deleted. One that `truncates`
    is of no document: it deletes all. What is put may have been another document before, which it `left`.
    """

    uri: str
    version: str | None
    truncates: bool = False
    left: str | None = None


class LineContent(NamedTuple):
    """A document that a line puts: text, title, and those of the named fields that it has."""

    text: str
    title: str
    fields: Mapping[str, Any]


#: A place in the log of a database: what is later there is greater.
Place: TypeAlias = tuple[int, str, int]


class LineFormat(Protocol):
    """A format of lines. Picklable: tasks read by it."""

    def told(self, line: bytes, entity: str, version: str = "") -> Told | None:
        """Read what a line says of its document; None of a line that rightly has none. `version`: that of the line.
        Raises `Malformed`.
        """

    def content(self, line: bytes, names: Sequence[str]) -> LineContent:
        """Raises `ValueError` saying what is wrong, for a line whose document is known."""

    def keyed(self, key: bytes, entity: str) -> str:
        """The URI of the document that a message's key names. Raises `Malformed`."""

    def place(self, line: bytes) -> Place | None:
        """The place of the change in the log of its database, as far as the line tells it."""


class JsonLines:
    """Instep's own format: `{"id": "4711", "version": 3, "title": "…", "text": "…"}` puts a document,
    `{"id": "4711", "op": "delete"}` is its tombstone. In place of `id` a line may name the document by a `uri`.
    """

    def told(self, line: bytes, entity: str, version: str = "") -> Told:
        event = event_of(line)
        return Told(event.names(entity), None if event.deletes else version or event.version_in(line))

    def content(self, line: bytes, names: Sequence[str]) -> LineContent:
        text, title = text_of(line)
        return LineContent(text, title, fields_of(line, names) if names else {})

    def keyed(self, key: bytes, entity: str) -> str:
        """A key is the id itself, or an object with `id` or `uri`."""
        if key.lstrip().startswith(b"{"):
            return event_of(key).names(entity)
        try:
            return _uri(key.decode(), None, entity)
        except UnicodeDecodeError:
            raise Malformed("the key is not UTF-8") from None

    def place(self, line: bytes) -> None:
        """No line tells it."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """The fields of a line that a listing needs. The text is passed over."""

    id: str | int | None = None
    uri: str | None = None
    op: str = "upsert"
    version: str | int | float | None = None

    @property
    def deletes(self) -> bool:
        return self.op == "delete"

    def names(self, entity: str) -> str:
        """The URI of its document: what it says, in canonical form, or `feed://<entity>/<id>`. Raises `Malformed`."""
        return _uri(self.id, self.uri, entity)

    def version_in(self, line: bytes) -> str:
        """The version that it names, or else a hash of all that the line says."""
        return hashlib.sha256(line).hexdigest()[:32] if self.version is None else storable_version(str(self.version))


class _Text(msgspec.Struct, frozen=True, gc=False):
    """The rest of a line that puts a document."""

    text: str | None = None
    title: str | None = None
    op: str = "upsert"


class _Known(msgspec.Struct, frozen=True):
    """A line that is wrong in other ways may still say which document it is of."""

    id: Any = None
    uri: Any = None


_EVENT: Final = msgspec.json.Decoder(Event)
_TEXT: Final = msgspec.json.Decoder(_Text)
_KNOWN: Final = msgspec.json.Decoder(_Known)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def unmarked(line: bytes) -> bytes:
    """Without the byte order mark that a file may begin with, and so any line of files that were put together."""
    return line.removeprefix(codecs.BOM_UTF8)


def event_of(line: bytes) -> Event:
    """Raises `Malformed`. A line that tells its document, but not what became of it, puts the document: reading its
    text will say what is wrong with it.
    """
    try:
        return _EVENT.decode(line)
    except msgspec.ValidationError:
        known = _known(line)
        if not isinstance(known.id, str | int | None) or not isinstance(known.uri, str | None):
            raise Malformed("`id` is text or a whole number, and `uri` is text") from None
        return Event(known.id, known.uri)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if (found := _with_half_characters(line)) is not None:
            return found
        raise Malformed(f"not JSON: {_said(error)}") from None
    except RecursionError:
        raise Malformed("lists and objects are nested too deep") from None


def _with_half_characters(line: bytes) -> Event | None:
    """The event of a line that has half of a character (`\\ud800`) somewhere: it may take a reader away."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    name, uri = said.get("id"), said.get("uri")
    if not isinstance(name, str | int | None) or not isinstance(uri, str | None) or not is_storable(f"{name}{uri}"):
        return None
    return Event(name, uri, "delete" if said.get("op") == "delete" else "upsert")


def text_of(line: bytes) -> tuple[str, str]:
    """Text and title. Raises `ValueError` saying what is wrong, for a line whose document is known."""
    try:
        found = _TEXT.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(_said(error)) from None
    if found.op != "upsert":
        raise ValueError("`op` is neither upsert nor delete")
    if found.text is None:
        raise ValueError("`text` is missing")
    return found.text, found.title or ""


def fields_of(line: bytes, names: Sequence[str]) -> dict[str, Any]:
    """Other fields of a line that puts a document, as far as it has them. A value that no type holds, such as 1e999,
    comes as its text: what its column is to be then says that it is wrong.
    """
    said = _FIELDS.decode(line)
    return {name: _value(said[name]) for name in names if name in said}


def _value(said: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(said)
    except (msgspec.DecodeError, RecursionError):
        return bytes(said).decode(errors="replace")


def whole(line: bytes) -> bool:
    """Whether it is JSON to its end: the beginning of an object never is."""
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _known(line: bytes) -> _Known:
    try:
        return _KNOWN.decode(line)
    except msgspec.ValidationError:
        raise Malformed("not a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"not JSON: {_said(error)}") from None
    except RecursionError:
        raise Malformed("lists and objects are nested too deep") from None


def _uri(name: str | int | None, uri: str | None, entity: str) -> str:
    if name is not None and uri is not None:
        raise Malformed("has both `id` and `uri`: one of them names the document, in all lines")
    if uri is not None:
        try:
            return canonical_uri(uri)
        except IdentityError as error:
            raise Malformed(str(error)) from None
    if name is None or isinstance(name, bool) or name == "":
        raise Malformed("has neither `id` nor `uri`")
    text = str(name)
    return f"{SCHEME}{entity}/{text if _UNQUOTED(text) else quote(text, safe=_SAFE)}"


def _said(error: Exception) -> str:
    """In our words where those of the decoder might repeat what the line says (they do not, of types and places)."""
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
