"""Schemas drawn from the keywords that are honoured."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "x1", "name", "é", 'q"x', "tab\t", "a b")
PATTERNS = ("^[a-c]{1,4}$", "x", "^\\d{2}-\\w+$", "^(ja|nein)$", "[^a-z]", "^é+$", "^a.c$", "^\\s?\\S$", '^["\\\\]+$')
KEY_PATTERNS = ("^x", "^[0-9]+$")
VALUES: tuple[Any, ...] = (None, True, 0, -3, 12.5, "", "word", 'quo"te\\', "é€😀", [], [1, "b"], {"k": [None]}, {})


def schemas(depth: int = 2) -> st.SearchStrategy[Any]:
    return st.composite(lambda draw: _Drawn(draw).root(depth))()


class _Drawn:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.shared: list[str] = []

    def root(self, depth: int) -> dict[str, Any]:
        shared = {name: self.schema(1) for name in ("one", "two")[: self.draw(st.integers(0, 2))]}
        self.shared = list(shared)
        schema = self.schema(depth)
        return {**schema, "$defs": shared} if shared else schema

    def schema(self, depth: int) -> dict[str, Any]:
        leaves = [self.string, self.number, self.integer, self.plain, self.enum]
        deeper = [self.array, self.object, self.object, self.any_of, self.all_of, self.types] if depth else []
        made = self.draw(st.sampled_from([*leaves, *deeper, *([self.reference] if self.shared else [])]))(depth)
        return {**made, "title": "t"} if self.draw(st.booleans()) else made

    def some(self, *pairs: tuple[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in pairs if self.draw(st.booleans())}

    def count(self, most: int) -> int:
        return self.draw(st.integers(0, most))

    def string(self, _depth: int) -> dict[str, Any]:
        if self.draw(st.booleans()):
            return {"type": "string", "pattern": self.draw(st.sampled_from(PATTERNS))}
        least = self.count(4)
        return {"type": "string", **self.some(("minLength", least), ("maxLength", least + self.count(6)))}

    def number(self, _depth: int) -> dict[str, Any]:
        low = self.draw(st.sampled_from([-12.5, -1, 0, 0.25, 3, 99.5]))
        width = self.draw(st.sampled_from([0.5, 1, 7.25, 1000]))
        bounds = self.some(("minimum", low), ("maximum", low + width))
        bounds |= self.some(("multipleOf", self.draw(st.sampled_from([0.5, 0.25, 2.5]))))
        return {"type": "number", **(bounds or self.some(("exclusiveMinimum", low), ("exclusiveMaximum", low + width)))}

    def integer(self, _depth: int) -> dict[str, Any]:
        low = self.draw(st.integers(-120, 120))
        bounds = self.some(("minimum", low), ("maximum", low + 40))
        return {"type": "integer", **bounds, **self.some(("multipleOf", self.draw(st.integers(1, 12))))}

    def plain(self, _depth: int) -> dict[str, Any]:
        return {"type": self.draw(st.sampled_from(["boolean", "null", ["string", "null"], ["integer", "boolean"]]))}

    def enum(self, _depth: int) -> dict[str, Any]:
        if self.draw(st.booleans()):
            return {"const": self.draw(st.sampled_from(VALUES))}
        return {"enum": self.draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))}

    def array(self, depth: int) -> dict[str, Any]:
        least = self.count(2)
        made = self.some(("minItems", least), ("maxItems", least + self.count(3)), ("items", self.schema(depth - 1)))
        if self.draw(st.booleans()):
            made["prefixItems"] = [self.schema(depth - 1) for _ in range(1 + self.count(1))]
        return {"type": "array", **made}

    def object(self, depth: int) -> dict[str, Any]:
        names = self.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
        made: dict[str, Any] = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}}
        made["required"] = [name for name in names if self.draw(st.booleans())]
        extra = self.draw(st.sampled_from(["none", "none", "schema", "default", "pattern"]))
        if extra == "none":
            made["additionalProperties"] = False
        elif extra == "schema":
            made["additionalProperties"] = self.schema(0)
        elif extra == "pattern":
            made |= {"patternProperties": {p: self.schema(0) for p in KEY_PATTERNS}, "additionalProperties": False}
        return made

    def any_of(self, depth: int) -> dict[str, Any]:
        return {"anyOf": [self.schema(depth - 1) for _ in range(1 + self.count(2))]}

    def all_of(self, depth: int) -> dict[str, Any]:
        return {"allOf": [self.object(depth), self.object(depth)]}

    def types(self, depth: int) -> dict[str, Any]:
        return {**self.string(depth), **self.integer(depth), "type": ["string", "integer", "null"]}

    def reference(self, _depth: int) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self.draw(st.sampled_from(self.shared))}"}
