"""A bucket whose keys are changed by comparing revisions: also a change whose answer was lost is made once."""

from __future__ import annotations

from collections.abc import Callable

from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from instep.bus.nats.connection import Connection, is_wrong_revision
from instep.bus.nats.listing import Found, find

#: What a key is to have, given what it has: None for no key, and the very same object for no change.
Change = Callable[[Found | None], bytes | Found | None]


class Bucket:
    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._jetstream = connection.client.jetstream(timeout=connection.timeout)
        self._name = name
        self._kept: KeyValue | None = None

    async def _bucket(self) -> KeyValue:
        if self._kept is None:
            self._kept = await self._jetstream.key_value(self._name)
        return self._kept

    async def get(self, key: str) -> Found | None:
        return await self._connection.at_once(lambda: self._get(key))

    async def _get(self, key: str) -> Found | None:
        try:
            entry = await (await self._bucket()).get(key)
        except KeyNotFoundError:
            return None
        assert entry.revision is not None
        return Found(entry.value or b"", entry.revision)

    async def change(self, key: str, change: Change) -> int:
        """The revision that the key has then, 0 for none. When an answer was lost, what was written is recognised."""
        tried: bytes | None = None
        read = -1

        async def attempt() -> int:
            nonlocal tried, read
            while True:
                found = await self._get(key)
                if found is not None and found.data == tried and found.revision > read:
                    return found.revision
                data = change(found)
                if data is found:
                    return 0 if found is None else found.revision
                assert not isinstance(data, Found)
                tried, read = data, 0 if found is None else found.revision
                revision = await self._set(key, data, found)
                if revision is not None:
                    return revision

        return await self._connection.at_once(attempt, writes=True)

    async def _set(self, key: str, data: bytes | None, before: Found | None) -> int | None:
        """The new revision; None when the key has changed since `before` was read."""
        bucket = await self._bucket()
        try:
            if before is None:
                assert data is not None
                return await bucket.create(key, data)
            if data is not None:
                return await bucket.update(key, data, last=before.revision)
            await bucket.delete(key, last=before.revision)
        except KeyWrongLastSequenceError:
            return None
        except APIError as error:
            if is_wrong_revision(error):
                return None
            raise
        return 0

    async def find(self, pattern: str) -> dict[str, Found]:
        """All keys that match now."""
        return await self._connection.at_once(lambda: self._find(pattern))

    async def _find(self, pattern: str) -> dict[str, Found]:
        return await find(self._connection, self._name, pattern)
