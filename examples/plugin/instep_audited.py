"""A target and a parser that any project can name once this package is installed.

The target keeps indexes as Lance datasets, and writes a line of JSON into a file whenever readers are given another
index, or one is deleted: auditors ask from when on something could be found.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from instep import ParsedDocument
from instep.targets.lance import LanceTarget


@dataclass(frozen=True)
class AuditedTarget(LanceTarget):
    """Lance datasets under `uri`; `audit` is the file that is written to. Tasks of Spark get a pickled copy."""

    audit: str = ""

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        before = self.served(alias)
        super().promote(alias, physical, epoch)
        # Asked again after a lost reply, it has changed nothing: then there is nothing to tell.
        if before != physical:
            self._tell(event="served", alias=alias, index=physical, before=before)

    def drop(self, physical: str) -> None:
        there = self.exists(physical)
        super().drop(physical)
        if there:
            self._tell(event="dropped", index=physical)

    def _tell(self, **what: str | None) -> None:
        if not self.audit:
            return
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), **what}) + "\n"
        # One write of a line at the end: those of several processes do not mix.
        file = os.open(self.audit, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


_CUE = re.compile(r"^\d+\s*\n\d\d:\d\d:\d\d[,.]\d{3} --> .*\n", re.MULTILINE)


def subtitles(data: bytes, uri: str) -> ParsedDocument | None:
    """A file of subtitles as running text, without numbers and times. None leaves other files to Instep."""
    if not uri.endswith(".srt"):
        return None
    text = _CUE.sub("", data.decode("utf-8-sig", "replace").replace("\r\n", "\n"))
    return ParsedDocument(" ".join(text.split()))
