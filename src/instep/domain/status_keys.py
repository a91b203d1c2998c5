"""Status keys that handlers write, and their values: `status.42.9970.MergeRequest`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

MAX_KEY: Final = 255
MAX_VALUE: Final = 16 * 1_024

_KEY = re.compile(r"status(\.[A-Za-z0-9_]+)+\Z")
#: Many are read at once.
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_PREFIX = re.compile(r"status(\.[A-Za-z0-9_]+)*\Z")


class StatusKeyError(ValueError):
    """Not a key, or not a value, of a status."""


def demand_key(key: str) -> None:
    if len(key) > MAX_KEY or not _KEY.match(key):
        raise StatusKeyError(f"{key[:MAX_KEY]!r} is not a status key such as status.42.9970.MergeRequest")


def demand_prefix(prefix: str) -> None:
    if len(prefix) > MAX_KEY or not _PREFIX.match(prefix):
        raise StatusKeyError(f"{prefix[:MAX_KEY]!r} is not the beginning of status keys, such as status.42.9970")


def encode(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    if len(text.encode()) > MAX_VALUE:
        raise StatusKeyError(f"a status has at most {MAX_VALUE} bytes")
    return text


def decode(data: str | bytes) -> Mapping[str, Any]:
    """Raises `StatusKeyError` unless it is a JSON object, which every handler writes."""
    if len(data) > MAX_VALUE:
        raise StatusKeyError(f"more than {MAX_VALUE} bytes")
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StatusKeyError("not the JSON of an object") from error
