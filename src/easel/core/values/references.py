"""References in the JSON of an action: `{"$value": …}`, `{"$secret": …}` and `{"$literal": …}`. RS-66

Owns their syntax. An object is a reference only if it has exactly one member and that member has one of these
names; beside other members the name is plain data. Does not know values, secrets or tools.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from easel.core.secret.secret import check_secret_name
from easel.core.validation import is_unsafe_name, quote_value, refuse
from easel.core.values.paths import MAX_PATH_DEPTH, PART, Path

STATE, INPUT, RUNTIME = "state", "input", "runtime"
NOW: Path = ("now",)
VALUE, SECRET, LITERAL = "$value", "$secret", "$literal"
NAMES = frozenset({VALUE, SECRET, LITERAL})

_PATH = re.compile(rf"(?P<source>state|input)\.(?P<path>{PART}(?:\.{PART})*+)|(?P<now>runtime\.now)")

# The steps from the arguments of a call to one place in them: names of members and indexes of elements.
ArgumentPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ValueRef:
    """The place of a JSON value of the state, of the input or of the runtime."""

    source: str
    path: Path

    def __str__(self) -> str:
        return f'{{"$value": "{self.source}.{".".join(self.path)}"}}'


@dataclass(frozen=True, slots=True)
class SecretRef:
    """The place of a secret of the user, which is read when the tool is called."""

    name: str

    def __str__(self) -> str:
        return f'{{"$secret": "{self.name}"}}'


@dataclass(frozen=True, slots=True)
class Literal:
    """JSON that is not resolved."""

    content: Any


Reference = ValueRef | SecretRef


@dataclass(frozen=True, slots=True)
class SecretUse:
    """The name of a secret, and the place in the arguments that its value replaces at execution."""

    path: ArgumentPath
    name: str


def parse_reference(members: dict[str, Any], at: str) -> ValueRef | SecretRef | Literal | None:
    """Return the reference that an object is, or None if it is plain data. Raises `BadInput`."""
    if len(members) != 1:
        return None
    name, content = next(iter(members.items()))
    if name == VALUE:
        return parse_value_path(content, f"{at}.{VALUE}")
    if name == SECRET:
        return SecretRef(check_secret_name(content, f"{at}.{SECRET}"))
    return Literal(content) if name == LITERAL else None


def parse_value_path(text: Any, at: str) -> ValueRef:
    """Parse the path of a value, which has the rules of a placeholder. X7"""
    match = _PATH.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        refuse(
            at,
            f"{quote_value(text)} must be a path that begins with `state.` or `input.`, "
            "such as `state.limit`, or `runtime.now`.",
        )
    return ValueRef(*split_path(match, at))


def split_path(match: re.Match[str], at: str) -> tuple[str, Path]:
    """Return the source and the path of a match with the groups `source`, `path` and `now`."""
    if match["now"]:
        return RUNTIME, NOW
    path = tuple(match["path"].split("."))
    if len(path) > MAX_PATH_DEPTH:
        refuse(at, f"a path must have at most {MAX_PATH_DEPTH} parts; one has {len(path)}.")
    if unsafe := next(filter(is_unsafe_name, path), None):
        refuse(at, f"`{unsafe}` must not be part of a path.")
    return match["source"], path


def parse_tree(value: Any, at: str, parse_text: Callable[[str, str], Any]) -> Any:
    """Return the JSON value with every reference parsed, and every string by `parse_text`. CV-26, RS-66

    Member names stay as they are, and so does the content of `{"$literal": …}`.
    """
    if isinstance(value, str):
        return parse_text(value, at)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if (reference := parse_reference(members, at)) is not None:
            return reference.content if isinstance(reference, Literal) else reference
        return {name: parse_tree(item, f"{at}.{name}", parse_text) for name, item in members.items()}
    if isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
        return [parse_tree(item, f"{at}[{index}]", parse_text) for index, item in items]
    return value


def parse_references(value: Any, at: str) -> Any:
    """Return the JSON value of a patch with its references parsed. Strings stay as they are. CV-26

    Raises `BadInput` for a secret, because a state is no place for one.
    """
    parsed = parse_tree(value, at, lambda text, _: text)
    for path, reference in find_references(parsed):
        if isinstance(reference, SecretRef):
            refuse(
                f"{at}{format_path(path)}", f"{SECRET} must not be in a state; it is for tool.call.args only."
            )
    return parsed


def leaves(tree: Any, path: ArgumentPath = ()) -> Iterator[tuple[ArgumentPath, Any]]:
    """Yield every value in the tree that is neither an object nor an array, with its path."""
    if isinstance(tree, Mapping):
        for name, item in cast("Mapping[str, Any]", tree).items():
            yield from leaves(item, (*path, name))
    elif isinstance(tree, list):
        for index, item in enumerate(cast("list[Any]", tree)):
            yield from leaves(item, (*path, index))
    else:
        yield path, tree


def find_references(tree: Any) -> Iterator[tuple[ArgumentPath, Reference]]:
    """Yield every reference in a parsed tree, with its path."""
    return ((path, leaf) for path, leaf in leaves(tree) if isinstance(leaf, (ValueRef, SecretRef)))


def find_mixed(raw: Any) -> Iterator[tuple[ArgumentPath, str]]:
    """Yield the path and the name for each object with the name of a reference beside other members.

    Such an object is plain data, which its author may not expect.
    """
    for at, inner in walk_unresolved(raw):
        if isinstance(inner, dict) and len(cast("dict[str, Any]", inner)) > 1:
            yield from ((at, name) for name in sorted(NAMES & cast("dict[str, Any]", inner).keys()))


def walk_unresolved(raw: Any, path: ArgumentPath = ()) -> Iterator[tuple[ArgumentPath, Any]]:
    """Yield every value of unparsed JSON with its path, except the content of references."""
    yield path, raw
    if isinstance(raw, dict):
        members = cast("dict[str, Any]", raw)
        if len(members) == 1 and not NAMES.isdisjoint(members):
            return
        for name, item in members.items():
            yield from walk_unresolved(item, (*path, name))
    elif isinstance(raw, list):
        for index, item in enumerate(cast("list[Any]", raw)):
            yield from walk_unresolved(item, (*path, index))


def format_path(path: ArgumentPath) -> str:
    """Return the path as errors show it, such as `.files[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def get_argument(args: Any, path: ArgumentPath) -> Any:
    """Return the value at this exact path."""
    for step in path:
        args = args[step]
    return args


def set_argument(args: Any, path: ArgumentPath, value: Any) -> Any:
    """Return the arguments with another value at this exact path; the given ones stay unchanged."""
    if not path:
        return value
    step, *rest = path
    copy = args.copy()
    copy[step] = set_argument(args[step], tuple(rest), value)
    return copy
