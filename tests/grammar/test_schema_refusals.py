"""What a schema asks for and can't be enforced is refused with its path; nothing is ignored."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from minfer_models.grammar import GrammarError, Vocabulary, compile_json_schema
from minfer_models.grammar.schema.keywords import ANNOTATIONS, HONOURED

# Every keyword of draft 2020-12 and its predecessors that validates, besides those that are honoured.
UNSUPPORTED: dict[str, Any] = {
    "not": {}, "if": {}, "then": {}, "else": {}, "contains": {}, "minContains": 1, "uniqueItems": True,
    "maxContains": 2,
    "propertyNames": {}, "dependentRequired": {}, "dependentSchemas": {}, "dependencies": {}, "unevaluatedItems": False,
    "unevaluatedProperties": False, "additionalItems": False, "$anchor": "a", "$dynamicAnchor": "a", "$dynamicRef": "#",
    "$recursiveRef": "#", "$recursiveAnchor": True, "$id": "http://x", "id": "x", "$vocabulary": {},
    "contentSchema": {},
    "extends": {}, "divisibleBy": 2, "disallow": "null", "nullable": True, "x-guidance": {"lenient": True},
    "requird": ["a"],
}  # fmt: skip


@pytest.mark.parametrize("keyword", UNSUPPORTED)
def test_an_unsupported_keyword_is_refused_with_its_path(byte_tokens: Vocabulary, keyword: str) -> None:
    schema = {"properties": {"a/b": {"items": {"anyOf": [{}, {keyword: UNSUPPORTED[keyword]}]}}}}
    with pytest.raises(GrammarError) as error:
        compile_json_schema(schema, byte_tokens)
    assert str(error.value).startswith(
        f"JSON Schema, #/properties/a~1b/items/anyOf/1/{keyword}: the keyword '{keyword}'"
    )
    assert all(name in str(error.value) for name in HONOURED)


def test_annotations_change_nothing(byte_tokens: Vocabulary) -> None:
    plain = compile_json_schema({"type": "string"}, byte_tokens).matcher()
    noted = compile_json_schema({"type": "string", **dict.fromkeys(ANNOTATIONS, "x")}, byte_tokens).matcher()
    assert (plain.mask() == noted.mask()).all()


WRONG = [
    ({"type": "text"}, "#/type", "'text' is no type"),
    ({"type": []}, "#/type", "[] is no type"),
    ({"type": [1]}, "#/type", "is no name or list of names"),
    ({"enum": []}, "#/enum", "[] is no list of values"),
    ({"enum": "a"}, "#/enum", "'a' is no list of values"),
    ({"required": "a"}, "#/required", "'a' is no list of names"),
    ({"required": ["a", "a"]}, "#/required", "has a name twice"),
    ({"minLength": -1}, "#/minLength", "-1 is no whole number from 0"),
    ({"maxItems": 1.5}, "#/maxItems", "1.5 is no whole number from 0"),
    ({"maxItems": True}, "#/maxItems", "True is no whole number from 0"),
    ({"maxLength": 10**9}, "#/maxLength", "1000000000 is more than 100000"),
    ({"minimum": "1"}, "#/minimum", "'1' is no number"),
    ({"exclusiveMinimum": True}, "#/exclusiveMinimum", "True is no number"),
    ({"maximum": 1e300}, "#/maximum", "1e+300 is beyond 1e15"),
    ({"multipleOf": 0}, "#/multipleOf", "0 isn't above 0"),
    ({"format": "regex"}, "#/format", "'regex' can't be enforced; supported are date-time,"),
    ({"pattern": 3}, "#/pattern", "3 is no regular expression"),
    ({"pattern": "a(?=b)"}, "#/pattern", "look-ahead at character 1 of"),
    ({"pattern": "(?<!b)a"}, "#/pattern", "look-behind at character 0 of"),
    ({"pattern": "(a)\\1"}, "#/pattern", "\\1 at character 3 of '(a)\\\\1' is a back-reference"),
    ({"pattern": "\\bfoo"}, "#/pattern", "\\b at character 0 of"),
    ({"pattern": "(?i)foo"}, "#/pattern", "(?i at character 0 of '(?i)foo' can't be enforced"),
    ({"items": {"pattern": "a$b"}}, "#/items", "lookarounds not supported"),
    ({"pattern": "(a"}, "#", "unclosed group"),
    ({"patternProperties": {"(?=a)": {}}}, "#/patternProperties", "look-ahead"),
    ({"patternProperties": {"^a": {}, "^ab": {"type": "null"}}, "type": "object"}, "#", "are not disjoint"),
    ({"items": [{}]}, "#/items", "a list of schemas is called prefixItems"),
    ({"items": 3}, "#/items", "3 is no schema"),
    ({"anyOf": []}, "#/anyOf", "[] is no list of schemas"),
    ({"anyOf": [1]}, "#/anyOf/0", "1 is no schema"),
    ({"properties": []}, "#/properties", "[] is no object of schemas"),
    ({"$ref": "http://a/b"}, "#/$ref", "leads out of this schema"),
    ({"$ref": "#foo"}, "#/$ref", "leads out of this schema"),
    ({"$ref": "#/$defs/a"}, "#/$ref", "leads nowhere: there is no '$defs'"),
    ({"enum": [{}], "properties": {"a": {"$ref": "#/enum/0"}}}, "#/properties/a/$ref", "leads to no schema"),
    ({"$ref": 1}, "#/$ref", "1 is no reference"),
    ({"type": "object", "minProperties": 2}, "#/minProperties", "the same name could come twice"),
    ({"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 3, "maxLength": 2}}, "#/items", "min"),
    ({"$defs": {"q": {"minimum": 3, "maximum": 2, "type": "integer"}}, "$ref": "#/$defs/q"}, "#/$defs/q", "minimum"),
    ({"items": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}, "#/items", "oneOf can't be enforced here"),
    ({"allOf": [{"type": "null"}, {"type": "string"}]}, "#", "incompatible types"),
    (False, "#", "nsatisfiable"),
    ({"$ref": "#"}, "#", "its values never end"),
    ({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}, "#", "its values never end"),
    ({"items": {"$ref": "#/$defs/l"},
      "$defs": {"l": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/l"}}}},
     "#/$defs/l", "its values never end"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "path", "said"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_enforced_is_refused_with_its_path(
    byte_tokens: Vocabulary, schema: Any, path: str, said: str
) -> None:
    with pytest.raises(GrammarError) as error:
        compile_json_schema(schema, byte_tokens)
    match = re.fullmatch(r"JSON Schema, (#\S*): (.*)", str(error.value))
    assert match is not None, error.value
    assert match[1] == path
    assert said in match[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1, column 2: this is no JSON"),
        ('{\n "a": }', "line 2, column 7: this is no JSON"),
        ('{"type": "null", "type": "string"}', "an object has 'type' twice"),
        ('{"minimum": NaN}', "NaN is no JSON number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"const": ' + "9" * 5000 + "}", "JSON Schema: "),
        (" " * (1 << 20) + "{}", "has 1048578 characters; at most 1048576 are read"),
        ('{"items":' * 101 + "{}" + "}" * 101, "nested too deeply"),
        (json.dumps({"anyOf": [{}] * 10_001}), "it has more than 10000 schemas"),
        ("3", "JSON Schema, #: 3 is no schema"),
        (r'{"const": "\ud800"}', "a text in it has a lone surrogate, U+D800"),
    ],
)
def test_text_that_is_no_schema_is_refused(byte_tokens: Vocabulary, text: str, said: str) -> None:
    with pytest.raises(GrammarError) as error:
        compile_json_schema(text, byte_tokens)
    assert said in str(error.value)


@pytest.mark.parametrize("value", [{"const": float("nan")}, {"const": {1, 2}}, {"const": b"x"}])
def test_values_that_json_has_no_form_for_are_refused(byte_tokens: Vocabulary, value: Any) -> None:
    with pytest.raises(GrammarError, match="it can't be written as JSON"):
        compile_json_schema(value, byte_tokens)
