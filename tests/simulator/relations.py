"""What a seed adds to a world: entities that are made from others, and generations that people name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

#: What is made from what.
_SHAPES: Sequence[Mapping[str, tuple[str, ...]]] = (
    {"Article": ("Document",)},
    {"Article": ("Document",)},
    {"Article": ("Document",), "Digest": ("Article",)},
    {"Digest": ("Document", "Article")},
)


@dataclass(frozen=True)
class Relations:
    """Most worlds have none. `upstream` says what an entity is made from; `late`: the source of the first entity holds
    nothing while there are faults, so that what is made from it cannot be. `generations` are those that are named.
    """

    upstream: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    late: bool = False
    generations: tuple[str, ...] = ()
    #: Their own: what they add changes nothing of what else a seed brings.
    random: Random = field(default_factory=Random)

    @classmethod
    def of(cls, seed: int) -> Relations:
        random = Random(f"relations of {seed}")
        shape = random.choice(_SHAPES) if random.random() < 0.15 else {}
        generations = random.choice((("v2",), ("", "v2"), ("v2", "v3"))) if random.random() < 0.15 else ()
        return cls(shape, bool(shape) and random.random() < 0.2, generations, random)

    @property
    def names(self) -> list[str]:
        """All entities that have to do with each other, upstream first."""
        if not self.upstream:
            return []
        return ["Document", "Article", *(["Digest"] if "Digest" in self.upstream else [])]

    def above(self, names: Sequence[str]) -> list[str]:
        """What these are made from, directly or not, and that is not among them."""
        found = list(names)
        for name in found:
            found += [each for each in self.upstream.get(name, ()) if each not in found]
        return found[len(names) :]

    def some(self, names: Sequence[str]) -> list[str]:
        """What a process is for that is not for all: the beginning of these, or the end."""
        if self.upstream and self.random.random() < 0.6:
            return list(names[-1:])
        return list(names[:1])

    def asked(self) -> str | None:
        """The generation that a run is for; None for that which is promoted."""
        return self.random.choice((None, *self.generations)) if self.generations else None
