"""Locations of targets in one canonical form: two targets in one place would overwrite and sweep each other's indexes.

Without network queries: two names of one server count as two places, except for the names of this machine.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from instep.project.addresses import is_url
from instep.project.fields import problem
from instep.project.targets import LanceTarget, PostgresTarget, Target
from instep.servers.address import server_address

#: What two declarations of one place have in common; never shown, though secrets are no part of it.
Location: TypeAlias = tuple[Any, ...]

_LOCAL: Final = "localhost"
#: Where servers of PostgreSQL put their sockets if they are told nothing.
_SOCKETS: Final = ("/run/postgresql", "/var/run/postgresql", "/tmp")  # noqa: S108 (nothing is written there)
#: Default ports of clients, for http and https. Those of ClickHouse are two ports of one server.
_PORTS: Final[Mapping[str, tuple[int, int]]] = {
    "clickhouse": (8123, 8443),
    "qdrant": (6333, 6333),
    "milvus": (19530, 443),
    "opensearch": (9200, 443),
}
#: What a server calls the database of an address that names none.
_DATABASES: Final[Mapping[str, str]] = {"clickhouse": "instep", "milvus": "default"}
#: Options of object stores that say which store it is, not how to get in.
_STORE: Final = re.compile(r"endpoint|account_name|\Aaws_s3_express\Z", re.IGNORECASE)


def check_places(targets: Mapping[str, Target], resolved: Mapping[str, Target]) -> None:
    """Refuse a target that is where another one is; `resolved` are the same with absolute paths."""
    names: dict[Location, str] = {}
    for name in targets:
        place = location_of(resolved[name])
        if place in names:
            message = f"a place is declared once, and this is that of the target {names[place]}, too"
            raise problem("place", message, path=("targets", name, "uri"), beside=("targets", names[place], "uri"))
        names[place] = name


def location_of(target: Target) -> Location:
    """The location of a target with absolute paths."""
    match target:
        case PostgresTarget():
            return target.type, *_postgres(target.uri), target.schema_
        case LanceTarget() if is_url(target.uri) and not _is_file(target.uri):
            return target.type, *_object_store(target.uri, target.storage())
    if not is_url(target.uri) or _is_file(target.uri):
        return target.type, *_on_disk(target.uri)
    return target.type, *_server(target.type, urlsplit(target.uri))


def _is_file(uri: str) -> bool:
    return uri.lower().startswith("file://")


def _on_disk(uri: str) -> Location:
    """The nearest folder that is there, and the way from there: links and mounts lead to the same one."""
    path = Path(os.path.realpath(unquote(urlsplit(uri).path) if _is_file(uri) else uri))
    for folder in (path, *path.parents):
        try:
            found = folder.stat()
        except OSError:
            continue
        return found.st_dev, found.st_ino, str(path.relative_to(folder))
    return (str(path),)


def _server(kind: str, address: SplitResult) -> Location:
    port = address.port or _PORTS[kind][address.scheme == "https"]
    if kind == "clickhouse" and port == _PORTS[kind][1]:
        port = _PORTS[kind][0]
    path = "/".join(_steps(address.path)[: 1 if kind in _DATABASES else None])
    return _host(address.hostname or ""), port, path or _DATABASES.get(kind, "")


def _postgres(uri: str) -> Location:
    """A PostgreSQL location as libpq understands it: options override the parts before them."""
    address = server_address(uri)
    said = address.options
    hosts = said.get("hostaddr") or said.get("host") or address.host
    hosts = hosts or os.environ.get("PGHOSTADDR") or os.environ.get("PGHOST") or ""
    ports = said.get("port") or address.port or os.environ.get("PGPORT") or 5432
    database = said.get("dbname") or address.database
    return frozenset(_doors(str(hosts), str(ports))), said.get("service"), database


def _doors(hosts: str, ports: str) -> Iterator[tuple[str, str]]:
    """Pairs of host and port: several hosts have a port each, or all the same one."""
    each_port = ports.split(",")
    for index, host in enumerate(hosts.split(",")):
        yield _host(host), each_port[index] if len(each_port) > 1 and index < len(each_port) else each_port[0]


def _object_store(uri: str, options: Mapping[str, str]) -> Location:
    address = urlsplit(uri)
    stores = sorted((key.lower(), _endpoint(value)) for key, value in options.items() if _STORE.search(key))
    asked = sorted(parse_qsl(address.query, keep_blank_values=True))
    authority = address.netloc.lower()
    return address.scheme.lower(), authority, _steps(unquote(address.path)), tuple(asked), tuple(stores)


def _endpoint(value: str) -> Location:
    address = urlsplit(value)
    if not address.hostname:
        return (value.rstrip("/"),)
    return (
        _host(address.hostname),
        address.port or {"http": 80, "https": 443}.get(address.scheme),
        address.path.strip("/"),
    )


def _steps(path: str) -> tuple[str, ...]:
    return tuple(unquote(step) for step in path.split("/") if step not in ("", "."))


def _host(name: str) -> str:
    """A host in one spelling; this machine is `localhost`, also by a socket of PostgreSQL that is where it is by
    default.
    """
    if name.startswith("/"):
        folder = os.path.realpath(name)
        return _LOCAL if folder in map(os.path.realpath, _SOCKETS) else folder
    name = name.strip("[]").rstrip(".").lower()
    if name in ("", _LOCAL, "localhost.localdomain") or name.endswith(".localhost"):
        return _LOCAL
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        try:
            # 127.1 is an address for whatever connects.
            address = ipaddress.ip_address(socket.inet_aton(name))
        except (OSError, ValueError):
            return name
    address = getattr(address, "ipv4_mapped", None) or address
    return _LOCAL if address.is_loopback or address.is_unspecified else str(address)
