"""Identity of documents and chunks, the bucket of a document, and documents that were renamed.

The rules are those of the Knowledge Sync routing document: one document has one canonical URI,
one id and one bucket, whatever signature or fragment its address carries today.

Renamed documents: by their path in the project now, by an absolute path before.

The served documents are compared with the listed ones to find losses. A document that was only renamed is none.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

_SAFE = "/-._~!$&'()*+,;=:@"
#: Matches a part of a path that stands in a URI as it is: nearly each does, and this is asked of all in a listing.
plain = re.compile(r"[A-Za-z0-9/\-._~!$&'()*+,;=:@]*\Z").match
_OF_FILES = frozenset({"file", "project"})
_CONTROL = re.compile(r"[\x00-\x20\x7f]")


class IdentityError(ValueError):
    """A URI that cannot name a document. The message never repeats the URI: it may hold secrets."""


def canonical_uri(uri: str) -> str:
    """The URI that names a document: scheme and host in lower case; no user, query or fragment.

    The port and the path stay as they are, case included. Raises `IdentityError` for text with
    white space or control characters, without a scheme, or with an invalid port.
    """
    if _CONTROL.search(uri):
        raise IdentityError("source URI has white space or control characters: percent-encode them")
    try:
        parts = urlsplit(uri)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise IdentityError("source URI is malformed (host or port)") from None
    if not parts.scheme:
        raise IdentityError("source URI has no scheme")
    if not host and not parts.path.strip("/"):
        raise IdentityError("source URI names no document")
    if ":" in host:
        host = f"[{host}]"
    netloc = host if port is None else f"{host}:{port}"
    canonical = urlunsplit((parts.scheme.lower(), netloc, parts.path, "", ""))
    # urlunsplit drops the empty authority of file:///x; the canonical form keeps it.
    if parts.scheme.lower() in _OF_FILES and not netloc:
        canonical = f"{parts.scheme.lower()}://{parts.path}"
    return canonical


def file_uri(path: bytes) -> str:
    """`file://` URI of an absolute path, given as the bytes the system uses for it."""
    return "file://" + quoted(path)


def project_uri(path: bytes) -> str:
    """`project:///` URI of a path that is relative to the project's folder, `..` at its beginning included."""
    return "project://" if path == b"." else "project:///" + quoted(path)


def quoted(path: bytes) -> str:
    """A path, or a part of one, as it stands in a URI."""
    return quote(path, safe=_SAFE)


def document_id(canonical: str) -> str:
    """`doc_` and the SHA-256 of the canonical URI in hex (68 characters)."""
    return "doc_" + hashlib.sha256(canonical.encode()).hexdigest()


def bucket_of(document: str, buckets: int) -> int:
    """floorMod of the first four bytes of SHA-256(document_id), read as a signed big-endian int."""
    if buckets < 1:
        raise ValueError("a route needs at least one bucket")
    head = hashlib.sha256(document.encode()).digest()[:4]
    return int.from_bytes(head, "big", signed=True) % buckets


def content_hash(content: bytes) -> str:
    """SHA-256 in hex: of a document's bytes, or of a chunk's text in UTF-8."""
    return hashlib.sha256(content).hexdigest()


def titled_content(title: bytes, text: bytes) -> bytes:
    """The bytes that are hashed of a text with its title. There is no NUL in a text that is indexed."""
    return title + b"\0" + text


def with_facts(hashed: str, facts: str) -> str:
    """The hash of a document with what its source says beside title and text, if it says anything."""
    return content_hash(f"{hashed}\0{facts}".encode()) if facts else hashed


#: Characters of a chunk's hash that are of its title and text, where the rest is of its columns.
OF_TEXT: Final = 32


def chunk_hash(title: str | None, text: str | None, columns: str = "") -> str:
    """The hash of all that is indexed of a chunk, its title too, which may change alone; the same as without columns
    where these say nothing.
    """
    found = content_hash(titled_content((title or "").encode(), (text or "").encode()))
    return found[:OF_TEXT] + content_hash(columns.encode())[:OF_TEXT] if columns else found


def chunk_id(document: str, text_hash: str, nth: int = 0) -> str:
    """SHA-256 of `document_id | hash of what is embedded | n`, for the n-th (from 0 on) chunk of the document with this
    text: it stays the same wherever the text stands.
    """
    return hashlib.sha256(f"{document}|{text_hash}|{nth}".encode()).hexdigest()


def chunk_ids(document: str, text_hashes: Sequence[str]) -> list[str]:
    """The ids of all chunks of a document, in their order."""
    met: Counter[str] = Counter()
    found = []
    for each in text_hashes:
        found.append(chunk_id(document, each, met[each]))
        met[each] += 1
    return found


_Known = TypeVar("_Known")

_ABSOLUTE: Final = "file:///"
_PROJECT: Final = "project:///"


def renamed(before: Iterable[str], now: Iterable[str]) -> dict[str, str]:
    """Old URI → the one that the same document has now. The folder of the project may have been another one then."""
    old, new = dict.fromkeys(before), dict.fromkeys(now)
    went, came = [uri for uri in old if uri not in new], [uri for uri in new if uri not in old]
    return _pairs(went, came) | {project: absolute for absolute, project in _pairs(came, went).items()}


def as_named_now(served: Mapping[str, _Known], now: Iterable[str]) -> dict[str, _Known]:
    """Records of documents by URI, under the URIs that they have now."""
    names = renamed(served, now)
    return {names.get(uri, uri): known for uri, known in served.items()}


def _pairs(absolute: Iterable[str], project: Iterable[str]) -> dict[str, str]:
    """Absolute names that end in the path of one in the project. The shortest such name gets it."""
    ends = {_end(uri): uri for uri in project if uri.startswith(_PROJECT)}
    if not ends:
        return {}
    found: dict[str, str] = {}
    for uri in sorted((each for each in absolute if each.startswith(_ABSOLUTE)), key=len):
        steps = uri.removeprefix(_ABSOLUTE).split("/")
        tails = ("/".join(steps[at:]) for at in range(len(steps)))
        end = next((tail for tail in tails if tail in ends), None)
        if end is not None:
            found[uri] = ends.pop(end)
    return found


def _end(uri: str) -> str:
    """The path of a document, as far as an absolute one ends in it, too."""
    path = uri.removeprefix(_PROJECT)
    while path.startswith("../"):
        path = path.removeprefix("../")
    return path
