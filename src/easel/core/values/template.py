"""Placeholders: `{{state.path}}`, `{{input.path}}` and `{{runtime.now}}` inside the strings of an action.
CV-26…CV-29

Owns the syntax of placeholders and the text that replaces them. A string is parsed once. A value is inserted
as text, so it can neither change the structure of the arguments nor be parsed as a template again. Double
braces around other text are not placeholders and stay unchanged: there are no expressions.

A string is inserted unchanged. Numbers, `true`, `false`, objects and arrays become compact JSON.
`{{runtime.now}}` is the server's time in milliseconds since 1970, like all times of a canvas. A missing value
or `null` becomes empty text; `core/shell/template.py` has other rules for arguments that a shell reads.

References (`core/values/references.py`) are parsed and filled in the same pass: `{"$value": …}` becomes the
JSON value itself, and `{"$secret": …}` the name of the secret. What was inserted is never parsed. RS-66
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from easel.core.stream.json_text import to_json
from easel.core.stream.marker import (
    REDACTED,
    is_marker,
    markers_in,
    offloaded_bytes,
    restore_markers,
    unescape_keys,
)
from easel.core.validation import refuse
from easel.core.values.paths import MISSING, PART, Missing, Path, get_at
from easel.core.values.references import (
    RUNTIME,
    STATE,
    ArgumentPath,
    SecretRef,
    SecretUse,
    ValueRef,
    format_path,
    parse_tree,
    split_path,
)
from easel.errors import BadInput, TooLarge
from easel.ids import ArtifactId

MAX_FILLED_LENGTH = 1_000_000  # characters of all filled templates and values of one action
MAX_PLACEHOLDERS = 200  # of one string

# Possessive quantifiers prevent backtracking: a text full of braces is scanned in linear time.
_PLACEHOLDER = re.compile(
    rf"\{{\{{[ \t]*+(?:(?P<source>state|input)\.(?P<path>{PART}(?:\.{PART})*+)|(?P<now>runtime\.now))"
    r"[ \t]*+\}\}"
)
_BRACES = re.compile(r"\{\{[^{}\n]{0,100}\}\}")


@dataclass(frozen=True, slots=True)
class Placeholder:
    source: str
    path: Path

    @property
    def key(self) -> str:
        return f"{self.source}.{'.'.join(self.path)}"

    def __str__(self) -> str:
        return f"{{{{{self.key}}}}}"


@dataclass(frozen=True, slots=True)
class Template:
    """A string with placeholders, split into literal text and placeholders."""

    parts: tuple[str | Placeholder, ...]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        return tuple(part for part in self.parts if isinstance(part, Placeholder))


def parse_template(text: str, at: str) -> Template | str:
    """Parse a string. Returns the string itself if it has no placeholder."""
    parts: list[str | Placeholder] = []
    end = 0
    for count, match in enumerate(_PLACEHOLDER.finditer(text), 1):
        if count > MAX_PLACEHOLDERS:
            refuse(at, f"must have at most {MAX_PLACEHOLDERS} placeholders.")
        if match.start() > end:
            parts.append(text[end : match.start()])
        parts.append(Placeholder(*split_path(match, at)))
        end = match.end()
    if not parts:
        return text
    if end < len(text):
        parts.append(text[end:])
    return Template(tuple(parts))


def find_placeholders(text: str) -> Iterator[str]:
    """Yield the placeholders of a string, such as `state.name`."""
    for match in _PLACEHOLDER.finditer(text):
        yield f"{match['source']}.{match['path']}" if match["source"] else "runtime.now"


def parse_templates(value: Any, at: str) -> Any:
    """Return the JSON value with every string and every reference parsed. CV-26, RS-66"""
    return parse_tree(value, at, parse_template)


def has_braces(text: str) -> bool:
    """Return whether the text has double braces, as a placeholder has."""
    return _BRACES.search(text) is not None


def find_unknown_placeholders(text: str) -> list[str]:
    """Return the texts in double braces that are not valid placeholders, to warn the author of a spec."""
    return _BRACES.findall(_PLACEHOLDER.sub("", text))


# --- filling ------------------------------------------------------------------------------------------------


class MissingArtifacts(Exception):
    """Placeholders need the content of artifacts that were not fetched. Fetch `artifact_ids` and retry."""

    def __init__(self, artifact_ids: frozenset[ArtifactId]) -> None:
        super().__init__()
        self.artifact_ids = artifact_ids


@dataclass(frozen=True, slots=True)
class Values:
    """The values of the placeholders of one execution.

    A state has markers in place of large values that were offloaded to artifacts. `fetched` has the content
    of artifacts that `MissingArtifacts` named. The input has no markers.
    """

    state: Any
    input: Any
    now_ms: int
    fetched: Mapping[ArtifactId, bytes] = field(default_factory=dict[ArtifactId, bytes])

    def resolve(self, placeholder: Placeholder | ValueRef) -> Any | Missing:
        if placeholder.source == RUNTIME:
            return self.now_ms
        return (
            self._resolve_in_state(placeholder)
            if placeholder.source == STATE
            else get_at(self.input, placeholder.path)
        )

    def _resolve_in_state(self, placeholder: Placeholder | ValueRef) -> Any | Missing:
        """Return the value at the placeholder's path in the state.

        The path may lead into an offloaded value, and the value at its end may contain offloaded values.
        """
        value, remaining = self.state, list(placeholder.path)
        while remaining and not (isinstance(value, dict) and is_marker(cast("dict[str, Any]", value))):
            part = remaining.pop(0)
            value = get_at(unescape_keys(value) if part.endswith(REDACTED) else value, (part,))
        return get_at(self._restore(value, placeholder), remaining)

    def _restore(self, value: Any, placeholder: Placeholder | ValueRef) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        needed = markers_in(value)
        if missing := needed - self.fetched.keys():
            if offloaded_bytes(value) > MAX_FILLED_LENGTH:
                raise TooLarge(what=f"The value of {placeholder}", limit=MAX_FILLED_LENGTH)
            raise MissingArtifacts(missing)
        return restore_markers(value, self.fetched)


def as_text(value: Any | Missing) -> str | None:
    """Return the text to insert for a value, or None if the value is missing or `null`."""
    if value is MISSING or value is None:
        return None
    return value if isinstance(value, str) else to_json(value)


class Filler:
    """Fills the templates and references of one action.

    Raises `TooLarge` if the filled text exceeds `limit` characters in total; a value counts with its JSON.
    `at` is the path of the filled tree, for error messages.
    """

    def __init__(self, values: Values, *, limit: int = MAX_FILLED_LENGTH, at: str = "args") -> None:
        self._values = values
        self._limit = limit
        self._remaining = limit
        self._at = at
        self.secrets: list[SecretUse] = []  # the secrets of the filled tree

    def resolve_texts(self, template: Template) -> list[str | None]:
        """Return the text of each placeholder of a template, in order."""
        return [
            self._charge(as_text(self._values.resolve(placeholder))) for placeholder in template.placeholders
        ]

    def fill(self, template: Template | str) -> str:
        if isinstance(template, str):
            return template
        texts = iter(self.resolve_texts(template))
        return "".join(part if isinstance(part, str) else next(texts) or "" for part in template.parts)

    def fill_tree(
        self,
        tree: Any,
        special: Callable[[Template, ArgumentPath], str | None] | None = None,
        at: ArgumentPath = (),
    ) -> Any:
        """Return the arguments with every template and reference filled. RS-66

        `special` may return another text for a template; if it returns None, `fill` is used. In place of a
        secret there is its name. Raises `BadInput` if the value of a reference is missing.
        """
        if isinstance(tree, Template):
            text = special(tree, at) if special else None
            return self.fill(tree) if text is None else text
        if isinstance(tree, ValueRef):
            return self._get_value(tree, at)
        if isinstance(tree, SecretRef):
            self.secrets.append(SecretUse(at, tree.name))
            return tree.name
        if isinstance(tree, dict):
            return {
                name: self.fill_tree(item, special, (*at, name))
                for name, item in cast("dict[str, Any]", tree).items()
            }
        if isinstance(tree, list):
            return [
                self.fill_tree(item, special, (*at, index))
                for index, item in enumerate(cast("list[Any]", tree))
            ]
        return tree

    def _get_value(self, reference: ValueRef, at: ArgumentPath) -> Any:
        value = self._values.resolve(reference)
        if value is MISSING:
            raise BadInput(problem=f"{self._at}{format_path(at)}: {reference} has no value.")
        self._charge(to_json(value))
        return value

    def _charge(self, text: str | None) -> str | None:
        self._remaining -= len(text or "")
        if self._remaining < 0:
            raise TooLarge(what="The text of the placeholders and values of this action", limit=self._limit)
        return text
