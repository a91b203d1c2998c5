"""Names of collections, aliases and partitions, and what filters are made of.

Milvus takes letters, digits and underscores in names: other characters of an index's name become `_x2d_` and the like.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from instep.errors import UserError
from instep.targets.names import checked_name

#: Holds what Instep knows of its indexes. No index has a name that begins like this, and all others of Instep do.
STATE = "_instep"

_LONGEST = 255
_ODD = re.compile(r"\A[0-9]|[^A-Za-z0-9_]|_(?=x[0-9a-f]{2}_)")
_CODED = re.compile(r"_x([0-9a-f]{2})_")

#: What ends a text in a filter, or begins something else in it. Anything else stands for itself.
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def collection(name: str) -> str:
    """The collection (or alias) of an index (or alias) of this name."""
    coded = _ODD.sub(lambda found: f"_x{ord(found[0]):02x}_", checked_name(name))
    if len(coded) > _LONGEST:
        raise UserError(f"{name!r} is too long for a collection of Milvus", hint="Use a shorter name.")
    return coded


def directory(name: str) -> str:
    """The collection that lists the chunks of this index (see `directory`). Its name has room for any index's."""
    return f"{STATE}_{hashlib.sha256(checked_name(name).encode()).hexdigest()}"


def index(coded: str) -> str:
    """The index whose collection this is."""
    return _CODED.sub(lambda found: chr(int(found[1], 16)), coded)


def partition(prefix: str, bucket: int) -> str:
    return f"{prefix}_{bucket}"


def text(value: str) -> str:
    """A text as it stands in a filter."""
    return f'"{value.translate(_ESCAPES)}"'


def texts(values: Iterable[str]) -> str:
    return f"[{', '.join(map(text, values))}]"
