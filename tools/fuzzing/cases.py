"""Which file is case number N of a seed: first every single edit and cut of the plainest model, then random ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

from tools.fuzzing.document import Document, Span, parse, text
from tools.fuzzing.edits import TEMPLATE_KEY, Edit, all_edits
from tools.fuzzing.raw import cuts, mutated
from tools.fuzzing.seeds import Seed
from tools.fuzzing.templates import LONG_TEMPLATES, TEMPLATES

PLAINEST = "llama-q8_0"
REAL = "real"
LONG_SHARE = 0.005
LISTED_ELEMENTS = 3
"""Elements of an array that are cut one by one; the others are alike."""


@dataclass(frozen=True, slots=True)
class Case:
    """A file to try: `content` and a hole behind it, and `siblings` beside it.

    `template`: whether the chat template is what was changed.
    """

    number: int
    seed: str
    what: str
    file: str
    content: bytes
    siblings: Mapping[str, bytes]
    hole: int
    template: bool

    def __str__(self) -> str:
        return f"case {self.number}: {self.seed}, {self.what}"


class Cases:
    """Every case of a random seed, by number; making one costs a fraction of a millisecond and needs no other."""

    def __init__(self, seeds: Mapping[str, Seed], random_seed: int) -> None:
        self.seeds, self.random_seed = seeds, random_seed
        self._sources = {name: _Source(seed) for name, seed in seeds.items()}
        self._small = [name for name in seeds if name != REAL]

    def __getitem__(self, number: int) -> Case:
        plain = self._sources[PLAINEST]
        if number < len(plain.edits):
            return _edited(number, plain, [plain.edits[number]])
        if number < self.n_listed:
            length = plain.cuts[number - len(plain.edits)]
            return _case(number, plain, f"cut to {length} bytes", plain.seed.content[:length])
        return self._drawn(number, Random(f"{self.random_seed}:{number}"))

    @cached_property
    def n_listed(self) -> int:
        """How many are listed one by one; the others are drawn."""
        plain = self._sources[PLAINEST]
        return len(plain.edits) + len(plain.cuts)

    def _drawn(self, number: int, random: Random) -> Case:
        if REAL in self._sources and random.random() < 0.003:
            source = self._sources[REAL]
            other = self._sources[PLAINEST].seed.content
        else:
            source = self._sources[random.choice(self._small)]
            other = self.seeds[random.choice(self._small)].content
        if source.seed.name == REAL or random.random() < 0.5:
            what, content = mutated(random, source.seed.content, source.spans, other)
            return _case(number, source, what, content)
        if source.seed.siblings and random.random() < 0.5:
            return _sibling_damaged(number, source, random, other)
        if random.random() < 0.06:
            return _edited(number, source, [source.template_edit(random)])
        edits = [random.choice(source.edits)]
        while random.random() < 0.3 and len(edits) < 4:
            edits.append(random.choice(source.edits))
        return _edited(number, source, edits)


class _Source:
    """A seed with what is known of its structure."""

    def __init__(self, seed: Seed) -> None:
        self.seed = seed
        self.document = parse(seed.content)
        self.spans = list(_thinned(self.document.spans, len(seed.content)))

    @cached_property
    def edits(self) -> list[Edit]:
        return all_edits(self.document)

    @cached_property
    def cuts(self) -> list[int]:
        return cuts(self.spans, len(self.seed.content))

    def template_edit(self, random: Random) -> Edit:
        """Another template, sometimes one that takes long, sometimes two in one."""
        source = random.choice(LONG_TEMPLATES if random.random() < LONG_SHARE else TEMPLATES)
        if random.random() < 0.3:
            source += random.choice(TEMPLATES)
        place = self.document.key(TEMPLATE_KEY.decode())
        assert place is not None
        key = replace(self.document.keys[place], payload=text(source))
        return Edit(f"{TEMPLATE_KEY!r} {source[:80]!r}", lambda: self.document.with_key(place, key))


def _thinned(spans: list[Span], size: int) -> Iterator[Span]:
    """All fields but most elements of long arrays, which are alike and would be nearly all that is chosen."""
    seen: dict[str, int] = {}
    for span in spans:
        seen[span.what] = seen.get(span.what, 0) + 1
        if span.start < size and ("element of" not in span.what or seen[span.what] <= LISTED_ELEMENTS):
            yield span


def _case(number: int, source: _Source, what: str, content: bytes, template: bool = False) -> Case:
    seed = source.seed
    return Case(number, seed.name, what, seed.file, content, seed.siblings, seed.hole, template)


def _edited(number: int, source: _Source, edits: list[Edit]) -> Case:
    """One edit, or several, each of the file that the ones before left, where it still has that structure."""
    document = edits[0].make()
    for edit in edits[1:]:
        document = _both(source.document, document, edit.make())
    what = " + ".join(edit.what for edit in edits)
    return _case(number, source, what, document.encoded(), template=TEMPLATE_KEY.decode() in what)


def _both(original: Document, first: Document, second: Document) -> Document:
    """The changes of two edits of the same document; the second one's where they touch the same entry."""
    keys = _merged(original.keys, first.keys, second.keys)
    infos = _merged(original.infos, first.infos, second.infos)
    changed = {name for name in ("magic", "version", "n_keys", "n_infos", "pad_to")
               if getattr(second, name) != getattr(original, name)}  # fmt: skip
    kept = {name: getattr(second if name in changed else first, name) for name in
            ("magic", "version", "n_keys", "n_infos", "pad_to")}  # fmt: skip
    return Document(keys, infos, original.data, **kept)


def _merged(original: list[Any], first: list[Any], second: list[Any]) -> list[Any]:
    if len(original) != len(first) or len(original) != len(second):
        return second if second != original else first
    return [b if b != o else a for o, a, b in zip(original, first, second, strict=True)]


def _sibling_damaged(number: int, source: _Source, random: Random, other: bytes) -> Case:
    """A good first shard beside a damaged one."""
    seed = source.seed
    name = random.choice(sorted(seed.siblings))
    sibling = _Source(Seed(name, name, seed.siblings[name], {}))
    if random.random() < 0.5:
        what, content = mutated(random, seed.siblings[name], sibling.spans, other)
    else:
        edit = random.choice(sibling.edits)
        what, content = edit.what, edit.make().encoded()
    case = _case(number, source, f"{name}: {what}", seed.content)
    return Case(number, case.seed, case.what, case.file, case.content, {**seed.siblings, name: content}, 0, False)
