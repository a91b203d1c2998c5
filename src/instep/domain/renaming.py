"""Renamed documents: by their path in the project now, by an absolute path before.

The served documents are compared with the listed ones to find losses. A document that was only renamed is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

_Known = TypeVar("_Known")

_ABSOLUTE: Final = "file:///"
_PROJECT: Final = "project:///"


def renamed(before: Iterable[str], now: Iterable[str]) -> dict[str, str]:
    """Old URI → the one that the same document has now. The folder of the project may have been another one then."""
    old, new = dict.fromkeys(before), dict.fromkeys(now)
    went, came = [uri for uri in old if uri not in new], [uri for uri in new if uri not in old]
    return _pairs(went, came) | {project: absolute for absolute, project in _pairs(came, went).items()}


def as_named_now(served: Mapping[str, _Known], now: Iterable[str]) -> dict[str, _Known]:
    """What is known of documents by URI, under the URIs that they have now."""
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
