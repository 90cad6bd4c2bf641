"""What the vendor servers refuse, in the parts that the vendors share. Knows no wire.

A server remembers each answer with the messages before it. Later requests must repeat both unchanged: that is
stricter than the vendors are, so that a lost signature or a changed id is found here.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
AT_TOP = frozenset({"allOf", "anyOf", "oneOf", "enum", "not"})
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
# JSON Schema 2020-12, as far as tools need it
JSON_SCHEMA = frozenset(
    [
        "$schema",
        "$id",
        "$ref",
        "$defs",
        "$comment",
        "$anchor",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "enum",
        "const",
        "type",
        "format",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "items",
        "prefixItems",
        "contains",
        "minContains",
        "maxContains",
        "minItems",
        "maxItems",
        "uniqueItems",
        "properties",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "required",
        "dependentRequired",
        "dependentSchemas",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "readOnly",
        "writeOnly",
        "deprecated",
    ]
)
# `parametersJsonSchema` takes JSON Schema, but for these
GEMINI_SCHEMA = JSON_SCHEMA - {"$schema", "const", "examples", "exclusiveMinimum", "exclusiveMaximum"}


class Rejected(Exception):
    """The request is refused with HTTP 400 and this message."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def check_keys(body: dict[str, Any], allowed: Iterable[str]) -> None:
    if unknown := sorted(set(body) - set(allowed)):
        raise Rejected(f"Unrecognized request argument supplied: {', '.join(unknown)}")


def check_tool(name: Any, schema: Any, pattern: re.Pattern[str], keywords: frozenset[str]) -> None:
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise Rejected(f"Invalid tool name {name!r}: it must match {pattern.pattern}")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise Rejected(f"Invalid schema for function {name!r}: schema must be of type 'object'")
    if found := sorted(AT_TOP & set(cast("dict[str, Any]", schema))):
        raise Rejected(f"Invalid schema for function {name!r}: {found} are not allowed at the top level")
    _check_schema(name, cast("dict[str, Any]", schema), keywords)


def check_tool_names(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise Rejected("Tool names must be unique")


def _check_schema(name: str, schema: Any, keywords: frozenset[str]) -> None:
    if not isinstance(schema, dict):
        return
    for key, value in cast("dict[str, Any]", schema).items():
        if key not in keywords:
            raise Rejected(f"Invalid schema for function {name!r}: unknown keyword {key!r}")
        if key in MAPS:
            for member in value.values():
                _check_schema(name, member, keywords)
        elif key in LISTS:
            for member in value:
                _check_schema(name, member, keywords)
        elif key in ("items", "additionalProperties", "not", "if", "then", "else"):
            _check_schema(name, value, keywords)


class Memory:
    """The answers that a server gave, each with the messages that it answered."""

    def __init__(self) -> None:
        self._answers: list[tuple[str, list[str], str]] = []  # context, messages, answer
        self.marks: set[str] = set()  # ids and signatures that the server made

    def remember(self, context: Any, messages: Sequence[Any], answer: Any, marks: Iterable[str]) -> None:
        self._answers.append((_text(context), [_text(message) for message in messages], _text(answer)))
        self.marks |= set(marks)

    def check(self, context: Any, messages: Sequence[Any], *, is_bound: bool) -> None:
        """Reject a request in which an answer follows its messages, but differs.

        `is_bound`: what comes before the messages (system, tools) must be unchanged too.
        """
        sent, around = [_text(message) for message in messages], _text(context)
        for known_context, before, _ in self._answers:
            if sent[: len(before)] != before or len(sent) == len(before):
                continue
            possible = {answer for _, other, answer in self._answers if other == before}
            if sent[len(before)] not in possible:
                raise Rejected(f"messages.{len(before)}: the history differs from what was sent before")
            if is_bound and known_context != around:
                raise Rejected("The block is bound to a different conversation: system or tools changed")
        answers = {answer for _, _, answer in self._answers}
        for place, message in enumerate(sent):
            if message in answers and not any(
                answer == message and before == sent[:place] for _, before, answer in self._answers
            ):
                raise Rejected(f"messages.{place}: the messages before this answer were changed")


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
