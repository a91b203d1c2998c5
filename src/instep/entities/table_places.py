"""Places of declared tables, as a fingerprint has them."""

from __future__ import annotations

from instep.project import ClickHouseSource, LakeSource, SparkSource
from instep.sources.url_files import is_url


def place_of(declared: SparkSource | ClickHouseSource | LakeSource, text: str) -> list[object]:
    """The location as it is declared, so that a project may be moved. Without secrets: a database as it is displayed,
    which is `text`.
    """
    if isinstance(declared, ClickHouseSource):
        return [text if is_url(declared.uri) else declared.uri, declared.table]
    if isinstance(declared, LakeSource):
        return [declared.path or text]
    return [declared.format, declared.path or text]
