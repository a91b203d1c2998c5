"""Models that run in this process, through the sentence-transformers library."""

from __future__ import annotations

import functools
from typing import Any, Literal

from instep.domain.texts import cleaned
from instep.errors import UserError


@functools.lru_cache(maxsize=3)
def load(kind: Literal["SentenceTransformer", "CrossEncoder"], name: str, where: str) -> Any:
    """The model of a name or in a folder, loaded once per process; `where` it is declared. Raises `UserError`."""
    try:
        import sentence_transformers
    except ModuleNotFoundError:
        raise UserError(
            "the package sentence-transformers is not installed",
            where=where,
            hint="Run: pip install 'instep[sentence-transformers]'",
        ) from None
    except Exception as error:  # PyTorch has many for a library of the system that is missing.
        raise _problem(
            "the package sentence-transformers cannot be imported", error, where, "Reinstall PyTorch."
        ) from error
    try:
        return getattr(sentence_transformers, kind)(name)
    except Exception as error:  # Its own, those of the download and of broken files have no class in common.
        hint = f"Check `model` under `{where}`: a folder, or a name on Hugging Face, where that can be reached."
        raise _problem(f"model {name!r} cannot be loaded", error, where, hint) from error


def _problem(what: str, error: Exception, where: str, hint: str) -> UserError:
    return UserError(f"{what}: {type(error).__name__}: {cleaned(str(error))}", where=where, hint=hint)
