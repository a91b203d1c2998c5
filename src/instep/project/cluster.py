"""Paths of this machine that tasks of Spark need: refused where executors on other machines cannot see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from instep.domain.refs import own_name
from instep.project.addresses import is_url
from instep.project.documents import DocumentEntity
from instep.project.entities import Entity
from instep.project.fields import problem
from instep.project.targets import THIS_HOST, ClickHouseTarget, LanceTarget, PythonTarget, Target, canonical_host


class LocalPlace(NamedTuple):
    """A path as it is declared, `at` that part of the project, that tasks read or (`written`) write."""

    at: tuple[str, ...]
    path: str
    written: bool


def is_elsewhere(master: str, remote: str | None) -> bool:
    """Whether tasks run on other machines, as far as the addresses say."""
    if remote is not None:
        return canonical_host(urlsplit(remote).hostname or "") != THIS_HOST
    if master.startswith("local"):
        return False
    hosts = master.removeprefix("spark://").split(",") if master.startswith("spark://") else [master]
    return any(canonical_host(each.rpartition(":")[0] or each) != THIS_HOST for each in hosts)


def check_visible_paths(
    master: str, remote: str | None, entities: Mapping[str, Entity], targets: Mapping[str, Target]
) -> None:
    """Refuse a local path that tasks elsewhere would have to read or write."""
    if not is_elsewhere(master, remote):
        return
    where = (remote or master).partition(";")[0]
    for place in local_places(entities, targets):
        message = (
            f"is a path of this machine ({place.path}), and Spark runs at {where}: name an object store or a server, "
            "or write `shared: true` under `spark` if all hosts see this path"
        )
        raise problem("place", message, path=place.at)


def local_places(entities: Mapping[str, Entity], targets: Mapping[str, Target]) -> list[LocalPlace]:
    """All paths that tasks read or write."""
    return [*_sources(entities), *_targets(targets)]


def fixed_part(pattern: str) -> str:
    """The folder below which all lies that a pattern can name; a path without wildcards as it is."""
    plain = takewhile(lambda step: not set(step) & set("*?[]{}"), pattern.split("/"))
    return "/".join(plain) or "/"


def _sources(entities: Mapping[str, Entity]) -> Iterator[LocalPlace]:
    for name, entity in entities.items():
        at = ("entities", own_name(name))
        yield from _places_of(entity.source, *at)
        if isinstance(entity, DocumentEntity) and entity.document is not None:
            for joined, each in entity.document.with_.items():
                yield from _places_of(each.source, *at, "document", "with", joined)


def _places_of(source: Any, *at: str) -> Iterator[LocalPlace]:
    for field, paths in (("path", getattr(source, "path", None)), ("uri", [getattr(source, "uri", None)])):
        place = (*at, "source", field)
        yield from (LocalPlace(place, each, written=False) for each in paths or () if each and is_local(each))


def _targets(targets: Mapping[str, Target]) -> Iterator[LocalPlace]:
    """Those that tasks write to. What works in this process alone is never given to tasks."""
    for name, target in targets.items():
        if isinstance(target, LanceTarget | PythonTarget) and is_local(target.uri):
            yield LocalPlace(("targets", name, "uri"), target.uri, written=True)
        if isinstance(target, ClickHouseTarget):
            staging = target.staging or target.uri
            if is_local(staging):
                at = ("targets", name, "staging" if target.staging else "uri")
                yield LocalPlace(at, staging, written=True)


def is_local(location: str) -> bool:
    """Whether it is a path, or the URL of one."""
    return not is_url(location) or location.lower().startswith("file:")
