"""Rare words of technical texts, each in a place of its own: who looks for one looks for that text and no other."""

from __future__ import annotations

from typing import Final

#: Places where such a word may stand.
_PLACES: Final = (
    "It calls _ctypes.{} in time.",
    "Make a com.zaxxer.hikari.{} of it.",
    "See https://docs.example.org/guide/{}.html?page=2#top for more.",
    "Get https://example.org/search?q={}&lang=en now.",
    "It is in /var/lib/{}/cache.db then.",
    "Open C:\\Users\\admin\\{}.ini first.",
    "Set {}_TIMEOUT_SECONDS before.",
    "Call self._private.{}() again.",
    "<{} class='wide'>text</p>",
    "Map<String, {}> found = make();",
    "Say --{}=value on the line.",
    "Write to {}@mail.example.org about it.",
    "The package {}-core-v1.22-rc7 is new.",
    "A link [{}](target.md) in Markdown.",
    "In `{}` there is code.",
    "The array a[{}] is read.",
    "Use std::vector::{}; then go.",
    "A pointer this->{}, followed.",
    "#{} is a tag.",
    "$" + "{{{}}} is a variable.",
    "It\u2019s {}\u2019s own, «{}».",
    "An em dash\u2014{}\u2014parts it.",
    '"{}": true, in JSON.',
    "50%{}|x^y~z",
    "{}/README.md",
    "{}… and so on",
    "{}",
)

_BEGIN: Final = (
    "Load",
    "Hikari",
    "zorg",
    "Frob",
    "quux",
    "plugh",
    "Xyzzy",
    "grault",
    "waldo",
    "thud",
    "garply",
    "corge",
)
_END: Final = (
    "Library",
    "DataSource",
    "blatt",
    "nicate",
    "ling",
    "Factory",
    "proxy",
    "Handler",
    "queue",
    "ster",
    "dex",
)

#: Each a text and the word that is looked for in it.
RARE: Final = tuple(
    (_PLACES[number % len(_PLACES)].replace("{{", "{").replace("}}", "}").replace("{}", word), word)
    for number, word in enumerate(
        f"{begin}{end}{again}" for again in ("", "2", "X9", "é") for begin in _BEGIN for end in _END
    )
)[:415]
