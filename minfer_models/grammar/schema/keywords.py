"""The keywords of JSON Schema (draft 2020-12): what each does here."""

from __future__ import annotations

from typing import Final

TYPES: Final = ("null", "boolean", "object", "array", "number", "string", "integer")
FORMATS: Final = (
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
)  # fmt: skip

# Where each keeps further schemas.
ONE_SCHEMA: Final = frozenset({"items", "additionalProperties"})
SCHEMA_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})

COUNTS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
OTHERS: Final = frozenset({"type", "enum", "const", "required", "pattern", "format", "$ref"})
HONOURED: Final = ONE_SCHEMA | SCHEMA_LISTS | SCHEMA_MAPS | COUNTS | NUMBERS | OTHERS

# Say nothing about which values are valid.
ANNOTATIONS: Final = frozenset(
    {
        "$schema", "$comment", "title", "description", "default", "example", "examples", "deprecated", "readOnly",
        "writeOnly", "contentMediaType", "contentEncoding", "discriminator",
    }
)  # fmt: skip

INSTEAD: Final = {
    "additionalItems": "write prefixItems and items",
    "dependencies": "write one schema with anyOf for each case",
    "dependentRequired": "write one schema with anyOf for each case",
    "dependentSchemas": "write one schema with anyOf for each case",
    "if": "write one schema with anyOf for each case",
    "then": "write one schema with anyOf for each case",
    "else": "write one schema with anyOf for each case",
    "nullable": 'write "type": [..., "null"]',
    "propertyNames": "write patternProperties and additionalProperties: false",
    "unevaluatedProperties": "write additionalProperties in the schema that has the properties",
    "unevaluatedItems": "write items in the schema that has the prefixItems",
    "$id": "references are resolved within the schema: # and #/...",
    "$anchor": "refer to it by its path: #/$defs/...",
    "$dynamicRef": "write $ref",
    "$recursiveRef": "write $ref",
}
