"""Placeholders: `{{state.path}}`, `{{input.path}}` and `{{runtime.now}}` inside the strings of an action. CV-26…CV-29

Owns what a placeholder is and what text it yields. A string is read once, into its parts; a value only ever becomes text in its
place, so it can neither change the shape of the arguments nor be read as a template again. Braces with anything else inside them
are ordinary text: nothing in here evaluates.

What a value becomes: text stays as it is; numbers, `true`, `false`, objects and arrays become compact JSON; `{{runtime.now}}` is
the server's time in milliseconds since 1970, as all times of a canvas are. What is missing, or `null`, is the empty text (what a
shell reads has its own law for that, see `shell.py`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from easel.core.stream.json_text import to_json
from easel.core.stream.marker import REDACTED, is_marker, markers_in, moved_bytes, restored, unescaped
from easel.core.validation import is_unsafe_name
from easel.core.values.paths import MAX_PATH_DEPTH, MISSING, PART, Missing, Path, found
from easel.errors import BadInput, TooLarge
from easel.ids import ArtifactId

STATE, INPUT, RUNTIME = "state", "input", "runtime"
NOW: Path = ("now",)
MAX_FILLED_LENGTH = 1_000_000  # characters that all templates of one action may grow to
MAX_PLACEHOLDERS = 200  # of one string

# Possessive: a text full of braces is looked at once.
_PLACEHOLDER = re.compile(
    rf"\{{\{{[ \t]*+(?:(?P<source>state|input)\.(?P<path>{PART}(?:\.{PART})*+)|(?P<now>runtime\.now))[ \t]*+\}}\}}"
)
_BRACES = re.compile(r"\{\{[^{}\n]{0,100}\}\}")


@dataclass(frozen=True, slots=True)
class Placeholder:
    source: str
    path: Path

    def __str__(self) -> str:
        return f"{{{{{self.source}.{'.'.join(self.path)}}}}}"


@dataclass(frozen=True, slots=True)
class Template:
    """A string that has placeholders: what stands between them, and what they are."""

    parts: tuple[str | Placeholder, ...]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        return tuple(part for part in self.parts if isinstance(part, Placeholder))


def parsed(text: str, at: str) -> Template | str:
    """A template, or the text itself where it has no placeholder."""
    parts: list[str | Placeholder] = []
    end = 0
    for count, match in enumerate(_PLACEHOLDER.finditer(text), 1):
        if count > MAX_PLACEHOLDERS:
            raise BadInput(problem=f"{at}: has more than {MAX_PLACEHOLDERS} placeholders.")
        if match.start() > end:
            parts.append(text[end : match.start()])
        parts.append(_placeholder(match, at))
        end = match.end()
    if not parts:
        return text
    if end < len(text):
        parts.append(text[end:])
    return Template(tuple(parts))


def _placeholder(match: re.Match[str], at: str) -> Placeholder:
    if match["now"]:
        return Placeholder(RUNTIME, NOW)
    path = tuple(match["path"].split("."))
    if len(path) > MAX_PATH_DEPTH:
        raise BadInput(
            problem=f"{at}: a path has at most {MAX_PATH_DEPTH} parts, one in this template has {len(path)}."
        )
    if unsafe := next(filter(is_unsafe_name, path), None):
        raise BadInput(problem=f"{at}: `{unsafe}` may not be part of a path.")
    return Placeholder(match["source"], path)


def leaves(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """What is neither an object nor an array, and where it is."""
    if isinstance(tree, Mapping):
        for name, item in cast("Mapping[str, Any]", tree).items():
            yield from leaves(item, (*path, name))
    elif isinstance(tree, list):
        for index, item in enumerate(cast("list[Any]", tree)):
            yield from leaves(item, (*path, index))
    else:
        yield path, tree


def parsed_tree(value: Any, at: str) -> Any:
    """The same JSON with a `Template` for every string that is one. Names of members are never templates. CV-26"""
    if isinstance(value, str):
        return parsed(value, at)
    if isinstance(value, dict):
        return {
            name: parsed_tree(item, f"{at}.{name}") for name, item in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [parsed_tree(item, f"{at}[{index}]") for index, item in enumerate(cast("list[Any]", value))]
    return value


def lookalikes(text: str) -> list[str]:
    """What is in double braces and no placeholder: worth a word to the author, since it will be sent as it stands."""
    return _BRACES.findall(_PLACEHOLDER.sub("", text))


# --- filling ------------------------------------------------------------------------------------------------------------


class NeedsValues(Exception):
    """A placeholder stands for something that was moved to these artifacts, and their bytes were not brought."""

    def __init__(self, artifact_ids: frozenset[ArtifactId]) -> None:
        super().__init__()
        self.artifact_ids = artifact_ids


@dataclass(frozen=True, slots=True)
class Values:
    """What the placeholders of one execution stand for: the values themselves, wherever they are kept.

    A state is kept light: a marker stands where something heavy was. `fetched` has the bytes of those that were asked for by
    `NeedsValues`. What comes as input was never light, and has no markers.
    """

    state: Any
    input: Any
    now_ms: int
    fetched: Mapping[ArtifactId, bytes] = field(default_factory=dict[ArtifactId, bytes])

    def of(self, placeholder: Placeholder) -> Any | Missing:
        if placeholder.source == RUNTIME:
            return self.now_ms
        return (
            self._of_state(placeholder)
            if placeholder.source == STATE
            else found(self.input, placeholder.path)
        )

    def _of_state(self, placeholder: Placeholder) -> Any | Missing:
        """A path may lead into what was moved, and what it leads to may have moved parts."""
        value, ahead = self.state, list(placeholder.path)
        while ahead and not (isinstance(value, dict) and is_marker(cast("dict[str, Any]", value))):
            part = ahead.pop(0)
            value = found(unescaped(value) if part.endswith(REDACTED) else value, (part,))
        return found(self._whole(value, placeholder), ahead)

    def _whole(self, value: Any, placeholder: Placeholder) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        needed = markers_in(value)
        if lacking := needed - self.fetched.keys():
            if moved_bytes(value) > MAX_FILLED_LENGTH:
                raise TooLarge(what=f"{placeholder}: what it stands for", limit=MAX_FILLED_LENGTH)
            raise NeedsValues(lacking)
        return restored(value, self.fetched)


def as_text(value: Any | Missing) -> str | None:
    """A value as text in place; none where there is no value."""
    if value is MISSING or value is None:
        return None
    return value if isinstance(value, str) else to_json(value)


class Filler:
    """Fills the templates of one action, and refuses to let a large value, named often, grow without bound."""

    def __init__(self, values: Values, *, limit: int = MAX_FILLED_LENGTH) -> None:
        self._values = values
        self._limit = limit
        self._left = limit

    def texts(self, template: Template) -> list[str | None]:
        """What each placeholder of a template yields, in order."""
        return [self._weighed(as_text(self._values.of(placeholder))) for placeholder in template.placeholders]

    def filled(self, template: Template | str) -> str:
        if isinstance(template, str):
            return template
        texts = iter(self.texts(template))
        return "".join(part if isinstance(part, str) else next(texts) or "" for part in template.parts)

    def filled_tree(
        self,
        tree: Any,
        special: Callable[[Template, tuple[str | int, ...]], str | None],
        at: tuple[str | int, ...] = (),
    ) -> Any:
        """The arguments with every template filled; `special` may fill one by a law of its own, else it is plain text."""
        if isinstance(tree, Template):
            text = special(tree, at)
            return self.filled(tree) if text is None else text
        if isinstance(tree, dict):
            return {
                name: self.filled_tree(item, special, (*at, name))
                for name, item in cast("dict[str, Any]", tree).items()
            }
        if isinstance(tree, list):
            return [
                self.filled_tree(item, special, (*at, index))
                for index, item in enumerate(cast("list[Any]", tree))
            ]
        return tree

    def _weighed(self, text: str | None) -> str | None:
        self._left -= len(text or "")
        if self._left < 0:
            raise TooLarge(what="What the placeholders of this action yield", limit=self._limit)
        return text
