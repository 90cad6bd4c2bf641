"""Reading JSON that a person or an agent wrote, with messages that name the place: `actions.deploy.confirm: …`.

Owns the few shapes that specs are made of. Knows nothing of what they mean.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, cast

from easel.errors import BadInput

MAX_DEPTH = 100  # levels of nesting in a value from outside
MAX_SHOWN_LENGTH = 60
NOTE = "x-"  # a member that begins like this is its author's own, and is kept unread
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")

Choice = TypeVar("Choice", bound=StrEnum)


def refuse(at: str, problem: str) -> NoReturn:
    raise BadInput(problem=f"{at}: {problem}")


def shown(value: Any) -> str:
    """What was given, short enough for a message."""
    text = value if isinstance(value, str) else type(value).__name__
    text = text if text.isprintable() else ascii(text)
    return f"`{text}`" if len(text) <= MAX_SHOWN_LENGTH else f"`{text[:MAX_SHOWN_LENGTH]}…`"


def checked_object(value: Any, at: str, *, most: int | None = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        refuse(at, "is an object.")
    if most is not None and len(cast("dict[str, Any]", value)) > most:
        refuse(at, f"has {len(cast('dict[str, Any]', value))} members; {most} is the limit.")
    return cast("dict[str, Any]", value)


def checked_list(value: Any, at: str, *, most: int) -> list[Any]:
    if not isinstance(value, list):
        refuse(at, "is a list.")
    items = cast("list[Any]", value)
    if len(items) > most:
        refuse(at, f"has {len(items)} entries; {most} is the limit.")
    return items


def check_members(given: Mapping[str, Any], known: Collection[str], at: str) -> None:
    """A misspelt member is told, not ignored; names that begin with `x-` are the author's own."""
    for name in given:
        if name not in known and not name.startswith(NOTE):
            refuse(
                f"{at}.{name}" if at else name,
                f"is not known here; known are {', '.join(sorted(known))}, and anything that begins with x-.",
            )


def checked_text(value: Any, at: str, *, longest: int, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or len(value) > longest or not (value or may_be_empty):
        refuse(at, f"is text of {0 if may_be_empty else 1} to {longest} characters.")
    return value


def checked_id(value: Any, at: str) -> str:
    """Matched exactly, so it is held to letters that cannot be mistaken for one another. X4, X5"""
    if not isinstance(value, str) or not _ID.fullmatch(value) or is_unsafe_name(value):
        refuse(
            at,
            f"{shown(value)} is no id; an id is 1 to 128 letters, digits and . _ : - (a letter or digit first), and not `constructor`.",
        )
    return value


def checked_number(value: Any, at: str, *, lowest: int, highest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        refuse(at, f"is a whole number from {lowest} to {highest}.")
    return value


def checked_flag(value: Any, at: str) -> bool:
    if not isinstance(value, bool):
        refuse(at, "is true or false.")
    return value


def checked_choice(value: Any, choices: type[Choice], at: str) -> Choice:
    if not isinstance(value, str) or value not in {*choices}:
        refuse(at, f"{shown(value)} is none of {', '.join(choices)}.")
    return choices(value)


def is_unsafe_name(name: str) -> bool:
    """Return whether a member of this name would be something other than data in a language that reads our states. Case X7"""
    return name.startswith("__") or name in {"constructor", "prototype"}


def is_too_deep(value: Any, deepest: int = MAX_DEPTH) -> bool:
    """Looked at level by level, so that no depth can exhaust the stack."""
    level: list[Any] = [value]
    for _ in range(deepest + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += cast("dict[Any, Any]", one).values()
            elif isinstance(one, (list, tuple)):
                inner += cast("list[Any]", one)
        if not inner:
            return False
        level = inner
    return True
