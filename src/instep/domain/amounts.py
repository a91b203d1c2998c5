"""Amounts of things as text, for display."""

from __future__ import annotations


def amount(number: int, thing: str) -> str:
    """`1 document`, `2,000 documents`: for English words that only take an s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
