"""Words of texts, the same for every target: where they begin and end, and what they are compared by.

A text is made into words once, here, before any store sees it; stores look for what they are handed, and so all of
them find the same. A word is a run of letters, digits and the marks on them; anything else parts words: white space,
punctuation, apostrophes, the dots and underscores of names, what stands in URLs and paths. So `LoadLibrary` is found in
`_ctypes.LoadLibrary`. A word is compared without regard to case and accents, by its stem in the declared language, and
by its first `LONGEST` characters. Where words stand side by side without spaces (Chinese, Japanese, Korean, Thai and
their neighbours), each sign and each pair of signs is one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from instep.errors import UserError

#: What is done to a text, as far as an index of other words would not be found by it: another number, another index.
RULES: Final = "words-1"

#: Characters of a word that count.
LONGEST: Final = 64

#: Runs whose words are remembered, about 15 MB of them.
_MOST_KNOWN: Final = 100_000

#: Words and phrases of one query; the cost of a search grows with them.
MAX_WORDS: Final = 64
MAX_PHRASES: Final = 8

#: The language that has no stems, and those that have some.
PLAIN: Final = "none"
LANGUAGES: Final = (
    *("arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english", "esperanto", "estonian"),
    *("finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian"),
    *("nepali", "norwegian", "persian", "polish", "portuguese", "romanian", "russian", "serbian", "sesotho"),
    *("spanish", "swedish", "tamil", "turkish", "yiddish", PLAIN),
)

#: Stands between columns: no phrase goes on from a title to its text. It is no word.
BETWEEN: Final = " ¶ "

#: For each byte of a text in UTF-8: capitals are small, what parts words is a space, and what is no ASCII stays.
BYTES: Final = bytes(
    each if each >= 0x80 else (ord(chr(each).lower()) if chr(each).isalnum() else 0x20) for each in range(256)
)

#: Scripts whose words stand side by side, or have their endings glued on: Thai, Lao, Myanmar, Hangul, Khmer, Kana, Han.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003fffd"
)
_PIECES: Final = f"[{_UNSPACED}]+|[^{_UNSPACED} ]+"
_PAIRS: Final = f"(?=([{_UNSPACED}]{{2}}))"

#: Letters with no accent to take off that are written like this where there are none.
_FOLDED: Final = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ł": "l", "\u0131": "i", "þ": "th", "ð": "d", "ħ": "h"}
)
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")

#: Runs of what words are made of, as far as a text is marked by them.
_RUN: Final = re.compile(r"(?:[^\W_]|[\u0300-\u036f])+")

_QUOTED: Final = re.compile(r'"([^"]*)"')
_QUOTES: Final = str.maketrans("“”„‟«»", '""""""')

#: Not looked for beside others: nearly every English text has them.
STOP: Final = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not"),
        *("of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was"),
        *("will", "with"),
    )
)


class _Signs(dict[int, str]):
    """For each character, what stands in its place: itself, or a space where words are parted."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        self[code] = found = sign if unicodedata.category(sign)[0] in "LMN" else " "
        return found


_SIGNS: Final = _Signs()


@dataclass(frozen=True, slots=True)
class Searched:
    """The columns of a row that are searched by words, each with how many times its words count, and their language."""

    language: str = "english"
    weights: tuple[tuple[str, int], ...] = (("title", 2), ("text", 1))

    @property
    def fingerprint(self) -> str:
        """It is readable, since an index is asked in the language that it was built with."""
        return " ".join([RULES, self.language, *(f"{name}:{weight}" for name, weight in self.weights)])


#: What is searched unless something else is declared.
SEARCHED_BY_DEFAULT: Final = Searched()


def language_of(fingerprint: str) -> str:
    """The language of an index, by the fingerprint of what is searched in it."""
    return fingerprint.split(" ")[1]


def normal(runs: Sequence[str], language: str, *, asked: bool = False) -> list[str]:
    """The words of each run of a text (what `BYTES` has left of it between two spaces), with a space in between. Of a
    text that is `asked` for, pairs of signs are enough.
    """
    if asked:
        return [_normal(each, language, asked=True) for each in runs]
    known = _known(language)
    if len(known) > _MOST_KNOWN:
        known.clear()
    found = list(map(known.get, runs))
    # Most runs were in a text before. The others are made words together: one by one takes twice as long.
    new = [run for run, words in zip(runs, found, strict=True) if words is None]
    plain = list(filter(str.isascii, new))
    stems = _stems(plain, language)
    if max(map(len, stems), default=0) > LONGEST:
        stems = [each[:LONGEST] for each in stems]
    made = dict(zip(plain, stems, strict=True))
    if len(plain) < len(new):
        made |= {run: _normal(run, language) for run in new if not run.isascii()}
    if max(map(len, new), default=0) > LONGEST:
        known.update((run, words) for run, words in made.items() if len(run) <= LONGEST)
    else:
        known.update(made)
    return [made[run] if words is None else words for run, words in zip(runs, found, strict=True)]


@cache
def _known(language: str) -> dict[str, str]:
    """The words of each run that a text in this language had."""
    return {}


def _normal(run: str, language: str, *, asked: bool = False) -> str:
    if not run.isascii():
        return " ".join(" ".join(_other(run, language, asked)).split())
    return _stems([run], language)[0][:LONGEST]


def _other(run: str, language: str, asked: bool) -> Iterator[str]:
    """Words of a run with other letters than those of ASCII."""
    for piece in _found(_PIECES)(unicodedata.normalize("NFKC", run).lower().translate(_SIGNS)):
        if _is_unspaced(piece):
            pairs = _found(_PAIRS)(piece)
            yield from pairs
            if not (asked and pairs):
                yield from dict.fromkeys(piece)
        else:
            (stem,) = _stems([piece], language)
            bare = unicodedata.normalize("NFKD", stem).translate(_FOLDED)
            yield unicodedata.normalize("NFC", _ACCENTS.sub("", bare))[:LONGEST]


@cache
def _found(expression: str) -> Callable[[str], list[str]]:
    """Compiled when it is first needed: of so many letters that takes two milliseconds, of each start."""
    return re.compile(expression).findall


def _is_unspaced(piece: str) -> bool:
    return re.match(f"[{_UNSPACED}]", piece) is not None


def words_of(text: str, language: str) -> list[str]:
    """The words of a text that is looked for, in their order."""
    runs = text.encode("utf-8", "replace").translate(BYTES).decode().split()
    return " ".join(normal(runs, language, asked=True)).split()


def _stems(words: list[str], language: str) -> list[str]:
    if language == PLAIN:
        return words
    found: list[str] = _stemmer(language).stemWords(words)
    return found


@cache
def _stemmer(language: str) -> Any:
    # Without a cache of its own: we remember runs, and to keep its 10,000 in order takes six times as long as stemming.
    return _library().Stemmer(language, 0)


def _library() -> Any:
    try:
        import Stemmer
    except ImportError:
        raise UserError("the stems of words need PyStemmer", hint="pip install 'PyStemmer>=3.1'") from None
    return Stemmer


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A search by words: for rows that have all of the phrases, each a row of words side by side, and if
    there is no phrase, one of the words. The more of the words a row has, and the rarer they are, the better it is. A
    word that is there twice counts twice.
    """

    words: tuple[str, ...] = ()
    phrases: tuple[tuple[str, ...], ...] = ()

    @property
    def text(self) -> str:
        """The words with a space in between."""
        return " ".join(self.words)


def text_query(typed: str, language: str = "english") -> TextQuery:
    """The query that a person has typed: what stands in quotes is a phrase. Nothing else of it has a meaning but its
    words. Those that every text has are left out, unless there are no others.
    """
    typed = typed.translate(_QUOTES)
    quoted = _QUOTED.findall(typed)[:MAX_PHRASES]
    phrases = [phrase for each in quoted for phrase in phrase_query(each, language).phrases]
    loose = words_of(_QUOTED.sub(" ", typed), language)
    stop = _stop(language)
    kept = [each for each in loose if each not in stop]
    if not kept and not phrases:
        kept = loose
    said = [*(word for phrase in phrases for word in phrase), *kept]
    different = list(dict.fromkeys(said))
    repeated = (Counter(said) - Counter(different)).elements()
    # The different ones first: repetitions push none of them out.
    return TextQuery((*different, *repeated)[:MAX_WORDS], tuple(dict.fromkeys(phrases))[:MAX_PHRASES])


def phrase_query(text: str, language: str) -> TextQuery:
    """The query for a text as it is: all of its words side by side, as far as they count."""
    words = words_of(text, language)[:MAX_WORDS]
    return TextQuery(tuple(dict.fromkeys(words)), tuple(_phrases(words)))


def _phrases(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The parts of a phrase within which words stand side by side in an index: pairs of signs do so with each other
    only, as single signs stand behind them.
    """
    part: list[str] = []
    for word in words:
        joined = _is_unspaced(word), bool(part) and _is_unspaced(part[-1])
        if part and any(joined) and not (all(joined) and len(word) > 1 and part[-1][-1] == word[0]):
            yield tuple(part)
            part = []
        part.append(word)
    if part:
        yield tuple(part)


@cache
def _stop(language: str) -> frozenset[str]:
    return frozenset(_stems(sorted(STOP), language)) if language == "english" else frozenset()


class Marked(NamedTuple):
    """A run of a text, from `start` to `end`, that has this word."""

    start: int
    end: int
    word: str


def marked(text: str, words: frozenset[str], language: str) -> list[Marked]:
    """Find these words in a text, in its order."""
    runs = list(_RUN.finditer(text))
    small = [each.group().encode("utf-8", "replace").translate(BYTES).decode() for each in runs]
    found = []
    for run, normed in zip(runs, normal(small, language), strict=True):
        if normed in words:
            found.append(Marked(run.start(), run.end(), normed))
        elif " " in normed:
            found += _within(text, run.start(), run.end(), words)
    return found


def _within(text: str, start: int, end: int, words: frozenset[str]) -> Iterator[Marked]:
    """The pairs of signs of a run, and its single signs, that are among the words."""
    covered = start
    for at in range(start, end):
        for width in (2, 1):
            if at >= covered and at + width <= end and text[at : at + width] in words:
                yield Marked(at, at + width, text[at : at + width])
                covered = at + width
                break
