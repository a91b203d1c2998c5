"""Dead letters."""

from __future__ import annotations

from instep.answers.answer import Answer, Ref


class Letter(Answer):
    """What another program asked for, and was given up: `want` is the failed want, `watermark` (ms) as of when it was
    asked.
    """

    ref: Ref
    want: str
    watermark: int | None
    attempts: int
    reason: str
    at: int
