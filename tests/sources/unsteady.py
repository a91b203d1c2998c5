"""A store that fsspec lists folder by folder, and of which some folders or files cannot be looked at for a while."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

_BROKEN: dict[str, Exception] = {}
_UNREAD: dict[str, Exception] = {}


class _Store(MemoryFileSystem):  # type: ignore[misc]
    """What it has is in memory; of a file its folder says no version, so that each is asked for."""

    protocol = "unsteady"
    find = AbstractFileSystem.find
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("unsteady://", "memory://")))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        self._demand(path)
        listed = super().ls(path, detail=True, **options)
        shown = [{key: each[key] for key in ("name", "size", "type")} for each in listed]
        return shown if detail else [each["name"] for each in shown]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        self._demand(path)
        return dict(super().info(path, **options))

    def cat_file(self, path: str, **options: Any) -> bytes:
        if error := _UNREAD.get(self._strip_protocol(path)):
            raise error
        return bytes(super().cat_file(path, **options))

    def _demand(self, path: str) -> None:
        if error := _BROKEN.get(self._strip_protocol(path).rstrip("/")):
            raise error


@dataclass
class Unsteady:
    """Three documents: `a.md`, `b/b.md` and `b/deep/c.md`. `broken` says what looking at a path raises,
    `unread` what reading it raises.
    """

    name: str
    broken: dict[str, Exception] = field(default_factory=dict)
    unread: dict[str, Exception] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"unsteady://{self.name}"

    @property
    def base(self) -> str:
        return f"unsteady:///{self.name}"

    def put(self, files: Mapping[str, bytes]) -> None:
        fsspec.filesystem("unsteady").pipe({f"/{self.name}/{path}": data for path, data in files.items()})


class _Paths(dict[str, Exception]):
    """Paths below a root."""

    def __init__(self, root: str, errors: dict[str, Exception]) -> None:
        super().__init__()
        self._root = root
        self._errors = errors

    def __setitem__(self, path: str, error: Exception) -> None:
        self._errors[self._root + path] = error

    def clear(self) -> None:
        self._errors.clear()


@pytest.fixture
def unsteady() -> Iterator[Unsteady]:
    fsspec.register_implementation("unsteady", _Store, clobber=True)
    name = uuid.uuid4().hex
    made = Unsteady(name, _Paths(f"/{name}", _BROKEN), _Paths(f"/{name}", _UNREAD))
    made.put({"a.md": b"# A\n\nalpha\n", "b/b.md": b"# B\n\nbeta\n", "b/deep/c.md": b"# C\n\ngamma\n"})
    yield made
    made.broken.clear()
    made.unread.clear()
