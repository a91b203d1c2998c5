"""Receivers of OpenLineage's events: a server, or a file with a line for each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from instep.errors import Transient, UserError

if TYPE_CHECKING:
    import httpx

#: Answers that say nothing of the event: the server, the address or the key is to be mended, and it is sent again.
_NOT_THE_EVENT: Final = frozenset({401, 403, 404, 405, 408, 425, 429})


@dataclass
class HttpReceiver:
    """Posts each event to a URL. One that does not answer within `timeout` seconds is away."""

    url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 5.0

    @property
    def _shown(self) -> str:
        address = urlsplit(self.url)
        return f"{address.scheme}://{address.hostname}{f':{address.port}' if address.port else ''}"

    @cached_property
    def _client(self) -> httpx.Client:
        try:
            import httpx
        except ImportError:
            # Not the event's fault: it is sent when the package is there.
            raise Transient("lineage to a server needs httpx: pip install 'instep[openlineage]'") from None
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return httpx.Client(headers=headers, timeout=self.timeout)

    def send(self, event: Mapping[str, Any]) -> None:
        client = self._client
        import httpx

        try:
            answer = client.post(self.url, content=msgspec.json.encode(event))
        except httpx.HTTPError as error:
            raise Transient(f"the receiver of lineage at {self._shown} is away ({type(error).__name__})") from None
        status = answer.status_code
        if status in _NOT_THE_EVENT or status >= 500 or 300 <= status < 400:
            raise Transient(f"the receiver of lineage at {self._shown} answered {status}")
        if not answer.is_success:
            raise UserError(
                f"the receiver of lineage at {self._shown} refused an event ({status})",
                hint="It is not sent again. Is it a server of OpenLineage?",
            )


@dataclass(frozen=True)
class FileReceiver:
    """Appends each event to a file, as a line of JSON."""

    path: Path

    def send(self, event: Mapping[str, Any]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(event) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Transient(f"{self.path}: lineage cannot be written ({error.strerror})") from None
