"""Validation of JSON from people and agents. Error messages name the member: `actions.deploy.confirm: …`.

Owns the checks of generic shapes: objects, lists, texts, ids, numbers, flags and choices. Does not know the
meaning of any member. `at` is always the path of the checked value, for the error message.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, cast

from easel.errors import BadInput

MAX_DEPTH = 100  # levels of nesting in a value from a client
MAX_QUOTE_LENGTH = 60
MAX_COMPARED_LENGTH = 64  # a longer word has no nearest word
EXTENSION_PREFIX = "x-"  # members with this prefix are for the author: stored, but not interpreted
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")

Choice = TypeVar("Choice", bound=StrEnum)


def refuse(at: str, problem: str) -> NoReturn:
    """Raise `BadInput` for the value at the path `at`."""
    raise BadInput(problem=f"{at}: {problem}")


def quote_value(value: Any) -> str:
    """Return a text, or the type name of another value, in backticks and shortened for an error message."""
    text = value if isinstance(value, str) else type(value).__name__
    text = text if text.isprintable() else ascii(text)
    return f"`{text}`" if len(text) <= MAX_QUOTE_LENGTH else f"`{text[:MAX_QUOTE_LENGTH]}…`"


def require_object(value: Any, at: str, *, max_items: int | None = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        refuse(at, "must be an object.")
    members = cast("dict[str, Any]", value)
    if max_items is not None and len(members) > max_items:
        refuse(at, f"has {len(members)} members; {max_items} is the limit.")
    return members


def require_list(value: Any, at: str, *, max_items: int) -> list[Any]:
    if not isinstance(value, list):
        refuse(at, "must be a list.")
    items = cast("list[Any]", value)
    if len(items) > max_items:
        refuse(at, f"has {len(items)} entries; {max_items} is the limit.")
    return items


def check_members(members: Mapping[str, Any], known: Collection[str], at: str) -> None:
    """Raise `BadInput` for a member that is not in `known`, unless its name begins with `x-`."""
    for name in members:
        if name not in known and not name.startswith(EXTENSION_PREFIX):
            refuse(
                f"{at}.{name}" if at else name,
                f"is unknown; known members are {', '.join(sorted(known))}, and any that begins with x-.",
            )


def require_text(value: Any, at: str, *, max_length: int, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or len(value) > max_length or not (value or may_be_empty):
        refuse(at, f"must be text of {0 if may_be_empty else 1} to {max_length} characters.")
    return value


def require_id(value: Any, at: str) -> str:
    """Return the id. Raises `BadInput` unless it is a valid id. X4, X5

    Only ASCII is allowed: ids are compared exactly, so no character may have a look-alike.
    """
    if not isinstance(value, str) or not _ID.fullmatch(value) or is_unsafe_name(value):
        refuse(
            at,
            f"{quote_value(value)} is not an id; an id must be 1 to 128 letters, digits and . _ : - "
            "(a letter or digit first), and not `constructor`.",
        )
    return value


def require_number(value: Any, at: str, *, minimum: int, maximum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        refuse(at, f"must be a whole number from {minimum} to {maximum}.")
    return value


def require_flag(value: Any, at: str) -> bool:
    if not isinstance(value, bool):
        refuse(at, "must be true or false.")
    return value


def require_choice(value: Any, choices: type[Choice], at: str) -> Choice:
    if not isinstance(value, str) or value not in {*choices}:
        nearest = find_nearest(value, [*choices]) if isinstance(value, str) else None
        hint = f"; did you mean `{nearest}`?" if nearest else "."
        refuse(at, f"{quote_value(value)} is not one of {', '.join(choices)}{hint}")
    return choices(value)


def find_nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most like a misspelt one, or None. Case, `_` and `-` do not count."""
    if len(word) > MAX_COMPARED_LENGTH:
        return None
    by_letters = {letters_of(name): name for name in known}
    found = difflib.get_close_matches(letters_of(word), by_letters, n=1)
    return by_letters[found[0]] if found else None


def letters_of(name: str) -> str:
    """Return the name without case, `_` and `-`, in which names are often misspelt."""
    return name.replace("_", "").replace("-", "").casefold()


def is_unsafe_name(name: str) -> bool:
    """Return whether JavaScript gives a member of this name a special meaning, as `__proto__`. Case X7"""
    return name.startswith("__") or name in {"constructor", "prototype"}


def is_too_deep(value: Any, max_depth: int = MAX_DEPTH) -> bool:
    """Return whether the value is nested deeper than `max_depth` levels.

    Walks level by level instead of recursively, so that a deep value does not exhaust the stack.
    """
    level: list[Any] = [value]
    for _ in range(max_depth + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += cast("dict[Any, Any]", item).values()
            elif isinstance(item, (list, tuple)):
                inner += cast("list[Any]", item)
        if not inner:
            return False
        level = inner
    return True
