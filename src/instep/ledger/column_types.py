"""Types of columns: texts and keys that every database takes, whatever they are given."""

from __future__ import annotations

from typing import Any

from sqlalchemy import VARBINARY, LargeBinary, String, Text, TypeDecorator

from instep.domain.pending_queue import LOWEST_KEY, MAX_TEXT, QueueKey
from instep.domain.storable import storable, storable_key


class KeyText(TypeDecorator[str]):
    """Text that is compared, of so many characters: whatever it is given, it is kept, found again, and no other."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self._length = length

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else storable_key(value, self._length)


class LongText(TypeDecorator[str]):
    """Text of any length, to be read."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else storable(value)


class QueueKeyBytes(TypeDecorator[QueueKey]):
    """A key of a pending queue as bytes, whose order is that of keys."""

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        """MariaDB and MySQL have no index of a BLOB."""
        short = dialect.name in ("mysql", "mariadb")
        return dialect.type_descriptor(VARBINARY(1 + MAX_TEXT) if short else LargeBinary())

    def process_bind_param(self, value: QueueKey | None, dialect: Any) -> bytes | None:
        match value:
            case int():
                return b"i" + (value - LOWEST_KEY).to_bytes(8, "big")
            case str():
                return b"s" + value.encode()
        return None

    def process_result_value(self, value: bytes | None, dialect: Any) -> QueueKey | None:
        if value is None:
            return None
        return int.from_bytes(value[1:], "big") + LOWEST_KEY if value[:1] == b"i" else value[1:].decode()
