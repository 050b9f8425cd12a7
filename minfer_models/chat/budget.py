"""What one rendering may cost: a template comes from a file, and a short one can ask for any amount of memory and time.

Sizes are checked before anything is allocated. Work is counted in units of very roughly 0.1 us: each step of a loop,
call and filter, and characters by eights.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any

import jinja2

MAX_TEXT = 1 << 24
"""Characters of one string: several times the longest context."""
MAX_ITEMS = 1 << 20
"""Items of one list."""
MAX_WIDTH = 1 << 16
"""A width, precision or indentation."""
MAX_BITS = 4096
"""Bits of an integer."""
MAX_WORK = 1 << 24
STEP, CALL = 8, 20
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_PERCENT = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[hlL]?[^\d]")
_LISTS = (list, tuple, KeysView, ValuesView, ItemsView)
_DIGITS = re.compile(r"\d+")


class TemplateLimitError(jinja2.TemplateError):
    """A template asks for more than a rendering may cost."""


class Budget:
    """The work left to one rendering."""

    def __init__(self) -> None:
        self.left = MAX_WORK

    def spend(self, units: int) -> None:
        """Count work; raises TemplateLimitError when there is too much of it."""
        self.left -= units
        if self.left < 0:
            raise TemplateLimitError(f"the template does more work than a rendering may ({MAX_WORK} units)")

    def result(self, value: Any) -> Any:
        """`value`, its size counted and within the limits."""
        if isinstance(value, str):
            self.spend(check_text(len(value)) >> 3)
        elif isinstance(value, list | tuple | dict):
            self.spend(check_items(len(value)))
        elif isinstance(value, int):
            check_bits(value.bit_length())
        return value

    def read(self, value: Any) -> Any:
        """`value`, counted as looked at all through: nested lists can say in a line what is exponential to print."""
        if isinstance(value, str):
            self.spend(len(value) >> 6)
        elif isinstance(value, Mapping | list | tuple | KeysView | ValuesView | ItemsView):
            self.deep(value)
        return value

    def deep(self, value: Any) -> int:
        """Characters and items of `value` and all inside it, counted and within the limits."""
        characters, items, waiting = 0, 1, [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                characters = check_text(characters + len(item))
            elif isinstance(item, Mapping):
                items = check_items(items + 2 * len(item))
                waiting += [*item.keys(), *item.values()]
            elif isinstance(item, _LISTS):
                items = check_items(items + len(item))
                waiting += item
        self.spend(4 * items)
        return characters + items


class Counted:
    """What a loop goes over, each step counted."""

    def __init__(self, items: Iterable[Any], budget: Budget, cost: int) -> None:
        self._items, self._budget, self._cost = items, budget, cost

    def __iter__(self) -> Iterator[Any]:
        spend, cost = self._budget.spend, self._cost
        for item in self._items:
            spend(cost)
            yield item

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]


def check_text(characters: int) -> int:
    """`characters`, unless a string of so many would be too long."""
    if characters > MAX_TEXT:
        raise TemplateLimitError(f"a text of {characters} characters is over the {MAX_TEXT} that a template may make")
    return characters


def check_items(count: int) -> int:
    """`count`, unless a list of so many would be too long."""
    if count > MAX_ITEMS:
        raise TemplateLimitError(f"{count} items are over the {MAX_ITEMS} that a template may make")
    return count


def check_bits(bits: int) -> None:
    """Refuse an integer of more than `MAX_BITS`."""
    if bits > MAX_BITS:
        raise TemplateLimitError(f"an integer of {bits} bits is over the {MAX_BITS} that a template may make")


def check_width(value: Any) -> None:
    """Refuse a width, precision or count of columns over `MAX_WIDTH`; text counts by its length."""
    size = len(value) if isinstance(value, str) else abs(value) if isinstance(value, int | float) else 0
    if size > MAX_WIDTH:
        raise TemplateLimitError(f"a width of {size} is over the {MAX_WIDTH} that a template may ask for")


def check_spec(spec: str) -> None:
    """Refuse a format specification with a width or precision over `MAX_WIDTH`."""
    for digits in _DIGITS.findall(spec):
        check_width(int(digits[:30]))


def check_percent(text: str, values: Any, budget: Budget) -> None:
    """Refuse `text % values` where it would be too long."""
    given = list(values.values()) if isinstance(values, Mapping) else values if isinstance(values, tuple) else [values]
    conversions = _PERCENT.findall(text)
    largest = max((len(v) if isinstance(v, str) else budget.deep(v) for v in given), default=0)
    for conversion in conversions:
        check_spec(re.sub(r"\([^)]*\)", "", conversion))
        if "*" in conversion:
            for value in given:
                check_width(value if isinstance(value, int) else 0)
    check_text(len(text) + len(conversions) * largest)


def check_replaced(text: str, old: Any, new: Any, count: Any = -1) -> None:
    """Refuse a replacement whose result would be too long."""
    if isinstance(old, str) and isinstance(new, str) and len(new) > len(old):
        found = text.count(old)
        times = min(found, count) if isinstance(count, int) and count >= 0 else found
        check_text(len(text) + times * (len(new) - len(old)))


def check_binop(operator: str, left: Any, right: Any, budget: Budget) -> None:
    """Refuse an operation whose result would be too large."""
    if isinstance(left, int) and isinstance(right, int):
        if operator == "**":
            check_bits(left.bit_length() * max(right, 0))
        elif operator != "%":
            check_bits(left.bit_length() + right.bit_length() * (operator == "*"))
    elif operator == "%" and isinstance(left, str):
        check_percent(left, right, budget)
    elif operator == "*":
        for items, count in ((left, right), (right, left)):
            if isinstance(items, str | list | tuple) and isinstance(count, int):
                check = check_text if isinstance(items, str) else check_items
                check(len(items) * max(count, 0))
    elif operator == "+" and isinstance(left, str) and isinstance(right, str):
        check_text(len(left) + len(right))
    elif operator == "+" and isinstance(left, list | tuple) and isinstance(right, list | tuple):
        check_items(len(left) + len(right))


def check_pieces(text: str, method: str, args: tuple[Any, ...]) -> None:
    """Refuse a split of a long text into too many pieces."""
    if len(text) <= MAX_ITEMS:
        return
    if method == "splitlines":
        check_items(sum(map(text.count, _LINE_ENDS)))
    elif args and isinstance(args[0], str) and args[0]:
        check_items(text.count(args[0]))
    else:
        check_items(len(str.split(text, None, MAX_ITEMS + 1)))


def check_method(text: str, method: str, args: tuple[Any, ...], budget: Budget) -> tuple[Any, ...]:
    """Refuse a string method whose result would be too large; its arguments, iterators among them as lists."""
    if method in ("ljust", "rjust", "center", "zfill", "expandtabs"):
        for value in args:
            check_width(value)
        if method == "expandtabs":
            check_text(len(text) + text.count("\t") * (args[0] if args else 8))
    elif method == "replace":
        check_replaced(text, *args)
    elif method in ("split", "rsplit", "splitlines"):
        check_pieces(text, method, args)
    elif method == "translate" and args and isinstance(args[0], Mapping):
        check_text(len(text) * max((len(v) for v in args[0].values() if isinstance(v, str)), default=1))
    elif method == "join" and len(args) == 1:
        return (joinable(text, args[0], budget),)
    return args


def joinable(separator: str, parts: Any, budget: Budget) -> Any:
    """The parts as a list, unless the text joined from them would be too long."""
    listed = parts if isinstance(parts, list | tuple) else list(Counted(parts, budget, STEP))
    check_text(budget.deep(listed) + len(listed) * len(separator))
    return listed
