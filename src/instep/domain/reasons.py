"""Reasons of failures, as they are stored and shown: short, one line, without secrets."""

from __future__ import annotations

import re

REASON = 300

_SECRETS = (
    (re.compile(r"(?<=://)[^\s/@]+@"), ""),
    (re.compile(r"(https?://[^\s?#]+)[?#]\S*"), r"\1"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}"), r"\1 ***"),
    (re.compile(r"\b(sk|pk|rk|ghp|gho|xox[a-z]|hf)[-_][A-Za-z0-9_-]{8,}"), "***"),
    (
        re.compile(
            r"(?i)(['\"]?(?:api[-_ ]?key|token|secret|password|passwd|authorization|signature|access[-_]?key)['\"]?"
            r"\s*[=:]\s*['\"]?)[^\s'\",;&]+"
        ),
        r"\1***",
    ),
)


def hushed(text: str) -> str:
    """What looks like a secret is starred out."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def cleaned(reason: str) -> str:
    """At most 300 characters, white space collapsed, what looks like a secret starred out."""
    text = hushed(" ".join(reason[:4_000].split()))
    # Lone surrogates are not text, and PostgreSQL stores no NUL.
    text = text.encode("utf-8", "replace").decode().replace("\0", "?")
    return text if len(text) <= REASON else text[: REASON - 1] + "…"
