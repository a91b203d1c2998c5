"""Sizes of chunks in tokens of the model that embeds them, as its own tokenizer counts them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from instep.domain.fingerprint import digest
from instep.errors import UserError

#: About so many characters are a token: for estimates alone.
CHARACTERS: Final = 4
#: The first step of the search for the number of tokens.
_STEP: Final = 8


@dataclass(frozen=True)
class Tokens:
    """The tokenizer of a model: that of OpenAI's model `name`, of a model of sentence-transformers or fastembed, or of
    `static`.
    Special tokens, which a model puts around a text, are not counted.
    """

    of: Literal["openai", "sentence-transformers", "fastembed", "static"]
    name: str = ""

    @property
    def fingerprint(self) -> str:
        # Long texts were once counted as what the model takes of them.
        return digest([self.of, self.name, *(["whole"] if self.of == "sentence-transformers" else [])])

    def splitter(self, kind: Any, size: int, overlap: int) -> Any:
        """A splitter of this class (of semantic-text-splitter) by tokens. Raises `UserError` if the model is not known
        or not installed.
        """
        match self.of:
            case "openai":
                return self._of_openai(kind, size, overlap)
            case "sentence-transformers":
                from instep.pipeline.documents.embed.sentence_transformers import tokenizer_of

                return kind.from_huggingface_tokenizer(_whole(tokenizer_of(self.name)), size, overlap)
            case "fastembed":
                from instep.pipeline.documents.embed import fastembed

                return kind.from_huggingface_tokenizer(_whole(fastembed.tokenizer_of(self.name)), size, overlap)
            case "static":
                from instep.pipeline.documents.embed.static import tokenizer_file

                # The library does not count the mark before a first character that has no token of its own.
                most = max(size - 1, 1)
                return kind.from_huggingface_tokenizer_file(str(tokenizer_file()), most, min(overlap, most - 1))

    def _of_openai(self, kind: Any, size: int, overlap: int) -> Any:
        try:
            return kind.from_tiktoken_model(self.name, size, overlap)
        except Exception as error:  # The library has no error of its own for it.
            raise UserError(
                f"it is not known how the model {self.name!r} counts tokens",
                where="chunk.unit",
                hint="Count characters: `unit: characters`. Known are OpenAI's models, by their own names.",
            ) from error


def _whole(tokenizer: Any) -> Any:
    """A copy of a tokenizer that neither cuts off texts that are too long for its model nor fills up short ones. The
    model keeps its own.
    """
    from tokenizers import Tokenizer

    found = Tokenizer.from_str(tokenizer.to_str())
    found.no_truncation()
    found.no_padding()
    return found


class TokenCounter:
    """Counts the tokens of texts exactly. The library that cuts by tokens has no count: what it cuts into one piece has
    no more tokens than it was allowed, which is tried. Raises `UserError` if the model is not known.
    """

    def __init__(self, tokens: Tokens) -> None:
        from semantic_text_splitter import TextSplitter

        self._splitter = cache(lambda most: tokens.splitter(TextSplitter, most, 0))
        self._splitter(1)

    def count(self, text: str) -> int:
        """The number of tokens; white space around a text has none, and a single letter one."""
        text = text.strip()
        if not text:
            return 0
        low, high = 0, len(text.encode())
        step, guess = _STEP, max(1, high // CHARACTERS)
        if self._fits(text, guess):
            high = guess
            while high - step > 0 and self._fits(text, high - step):
                high, step = high - step, 2 * step
            low = max(0, high - step)
        else:
            low = guess
            while low + step < high and not self._fits(text, low + step):
                low, step = low + step, 2 * step
            high = min(high, low + step)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(text, middle) else (middle, high)
        return high

    def _fits(self, text: str, most: int) -> bool:
        return len(self._splitter(most).chunks(text)) == 1
