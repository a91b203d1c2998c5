"""Texts for people: amounts, durations, and reasons of failures without secrets."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote, unquote


def amount(number: int, thing: str) -> str:
    """`1 document`, `2,000 documents`: for English words that only take an s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def names_in(names: Iterable[str] | None) -> list[str]:
    """Make a list of names. A text alone is one name, not its letters."""
    return [names] if isinstance(names, str) else list(names or ())


_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PART = r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(ms|min|s|m|h|d|w)"
_PARTS = re.compile(_PART)
_WHOLE = re.compile(rf"{_PART}(?: ?{_PART})*\Z")

#: For JSON Schema: what `parse_duration` takes.
DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)? ?(ms|min|s|m|h|d|w)( ?[0-9]+(\.[0-9]+)? ?(ms|min|s|m|h|d|w))*$"
#: A hundred years: for a longer time, leave the setting out.
LONGEST = 36_525 * _UNITS["d"]


def parse_duration(text: str) -> int:
    """Parse a duration to milliseconds. Raises `ValueError`, with an example, for text that is no duration above 0."""
    if not _WHOLE.match(text.strip()):
        raise ValueError("must be a duration such as 30s, 15min, 1h, 1h30m, 30d or 2w")
    total = round(sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(text)))
    if not 0 < total <= LONGEST:
        raise ValueError("must be a duration above 0, of a hundred years at most")
    return total


def duration_text(milliseconds: int) -> str:
    """A duration as `parse_duration` reads it: `1h 30m`."""
    parts = []
    for unit in ("w", "d", "h", "m", "s", "ms"):
        number, milliseconds = divmod(milliseconds, _UNITS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts) or "0s"


REASON = 300

_SECRETS = (
    (re.compile(r"(?<=://)[^\s/]+@"), ""),
    (re.compile(r"(https?://[^\s?#]+)[?#]\S*"), r"\1"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}"), r"\1 ***"),
    (re.compile(r"\b(sk|pk|rk|ghp|gho|xox[a-z]|hf)[-_][A-Za-z0-9_-]{8,}"), "***"),
    (
        re.compile(
            r"(?i)(['\"]?(?:api[-_ ]?key|token|secret|password|passwd|authorization|signature|\bsig|access[-_]?key)"
            r"['\"]?\s*[=:]\s*['\"]?)[^\s'\",;&]+"
        ),
        r"\1***",
    ),
)


#: Secrets that are known by their values, the longest first.
_KNOWN: list[str] = []
#: A shorter one may be part of any word; a word of no more letters than the other may be one of any text.
_LEAST: Final = 6
_WORD: Final = 12


def hide(secrets: Iterable[str | None]) -> None:
    """Have these values starred out of every text for people in this process from now on."""
    _KNOWN[:] = sorted({*_KNOWN, *_forms(secrets)}, key=len, reverse=True)


def hidden(text: str) -> str:
    """A text with all starred out that is known as a secret."""
    return _starred(text, _KNOWN)


def without(text: str, *secrets: str | None) -> str:
    """A text with these values starred out, in each of their forms."""
    return _starred(text, sorted(_forms(secrets), key=len, reverse=True))


def _starred(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
        if "…" in text:  # A task, which knows no secrets, may have cut it in the middle of one.
            for end in range(len(secret) - 1, _LEAST - 1, -1):
                text = text.replace(f"{secret[:end]}…", "***…")
    return text


def _forms(secrets: Iterable[str | None]) -> set[str]:
    """The ways in which messages write secrets: as they are, percent-encoded or decoded, as in JSON."""
    every: set[str] = set()
    for each in filter(None, secrets):
        every |= {each, quote(each, safe=""), unquote(each), json.dumps(each)[1:-1]}
    return {each for each in every if _tells(each)}


def _tells(secret: str) -> bool:
    """Whether it is found in messages by its value. `test` and `postgres` are not: messages say that, too."""
    word = secret.isalpha() and (secret.isupper() or secret[1:].islower())
    return len(secret) >= (_WORD + 1 if word else _LEAST)


def redacted(text: str) -> str:
    """A text with everything starred out that looks like a secret, or is known as one."""
    text = hidden(text)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def clause(text: object) -> str:
    """A text on one line and without its full stop, so that `; …` can follow it."""
    return " ".join(str(text).split()).removesuffix(".")


def withheld(reason: str) -> str:
    """A reason without what comes after its first colon, which may quote a document that not everybody may read."""
    head, colon, _ = reason.partition(": ")
    return f"{head}: not shown, as its documents have readers" if colon else reason


def cleaned(reason: str, note: str = "") -> str:
    """A reason of at most 300 characters, with white space collapsed and secrets starred out; after it a short note."""
    text = " ".join(redacted(reason[:4_000]).split())
    # Lone surrogates are not text, and PostgreSQL stores no NUL.
    text = text.encode("utf-8", "replace").decode().replace("\0", "?")
    note = f"; {note}" if note else ""
    most = REASON - len(note)
    return (text if len(text) <= most else text[: most - 1] + "…") + note


def nearest(text: str, names: Iterable[str]) -> str | None:
    """The name that may have been meant, whatever its case; or None."""
    by_small = {each.lower(): each for each in names}
    near = difflib.get_close_matches(text.lower(), by_small, n=1)
    return by_small[near[0]] if near else None


def unknown_name(kind: str, text: str, names: Sequence[str]) -> tuple[str, str]:
    """An error for a name that nothing has, and its hint."""
    meant = nearest(text, names)
    return f"no {kind} is named {text!r}" + (
        f" (did you mean {meant}?)" if meant else ""
    ), f"Declared: {', '.join(names)}."
