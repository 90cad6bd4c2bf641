"""Unknown members of a request: which are ignored with a warning, and which are refused. RS-67

Owns the words that must not be lost and the distance at which a name resembles one of them. Does not know how
a request was encoded, nor which members it may have.
"""

from collections.abc import Collection
from functools import cache
from typing import NamedTuple

from easel.core.validation import find_nearest, letters_of, quote_value
from easel.errors import BadInput

MAX_IGNORED = 100  # unknown members of one request; with more it is refused
MAX_WARNINGS = 10  # of one request; further unknown members are counted
MAX_DISTANCE = 2  # letters that are added, missing or different, after case, `_` and `-` are removed

# Checks of the version that the caller has seen. Ignoring one overwrites the change of another client.
GUARDS = ("expectedRevision", "expected_version", "base_revision_id")
# Keys that make a repeated request harmless. Ignoring one lets it run twice.
KEYS = ("idempotencyKey", "idempotency_key", "requestId")

_CHANGES = ((1, 1), (1, 0), (0, 1))  # letters of both names that are replaced, removed or added


class UnknownMember(NamedTuple):
    """A member that its object does not have. `at` is the path of the object; the request itself has none."""

    name: str
    known: Collection[str]
    at: str = ""

    @property
    def path(self) -> str:
        return quote_value(f"{self.at}.{self.name}" if self.at else self.name)


def review_unknown_members(unknown: Collection[UnknownMember]) -> list[str]:
    """Return the warnings about ignored members. Raises `BadInput` for one that must not be ignored. RS-67

    That is one that resembles a guard, or a key that the request has. Raises it also for more than
    MAX_IGNORED members: comparing thousands of names would take seconds.
    """
    if len(unknown) > MAX_IGNORED:
        raise BadInput(problem=f"{len(unknown)} members are unknown; at most {MAX_IGNORED} are ignored.")
    for member in unknown:
        if resembles(member.name, GUARDS):
            raise BadInput(problem=_refuse(member, GUARDS, "a check that is ignored can lose a change"))
        if any(key in member.known for key in KEYS) and resembles(member.name, KEYS):
            raise BadInput(
                problem=_refuse(member, KEYS, "a repeated request would run again without its key")
            )
    warnings = [_describe_ignored(member) for member in [*unknown][:MAX_WARNINGS]]
    if len(unknown) > MAX_WARNINGS:
        warnings.append(f"{len(unknown) - MAX_WARNINGS} more unknown members were ignored.")
    return warnings


def resembles(name: str, words: tuple[str, ...]) -> bool:
    """Return whether a name differs from one of the words by case, `_`, `-` and at most two letters."""
    letters = letters_of(name)
    return any(_is_near(letters, word) for word in _all_letters(words))


def _refuse(member: UnknownMember, words: tuple[str, ...], reason: str) -> str:
    taken = [word for word in words if word in member.known]
    advice = (
        f"did you mean `{taken[0]}`?"
        if taken
        else f"this request has no such check; its members are {', '.join(sorted(member.known)) or 'none'}."
    )
    return f"unknown member {member.path} is refused, because {reason}; {advice}"


def _describe_ignored(member: UnknownMember) -> str:
    nearest = find_nearest(member.name, member.known)
    advice = "." if nearest is None else f"; did you mean `{nearest}`?"
    return f"unknown member {member.path} was ignored{advice}"


@cache
def _all_letters(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(letters_of(word) for word in words)


def _is_near(name: str, word: str) -> bool:
    if abs(len(name) - len(word)) > MAX_DISTANCE:
        return False
    # Two changes leave at least one third of the word as it is; this test is fast and excludes most names.
    third = len(word) // 3
    if not (word[:third] in name or word[third:-third] in name or word[-third:] in name):
        return False
    return _is_within_two(name, word)


def _is_within_two(first: str, second: str) -> bool:
    """Return whether at most two letters are added, removed or replaced."""
    start, end = 0, min(len(first), len(second))
    while start < end and first[start] == second[start]:
        start += 1
    first, second, end = first[start:], second[start:], end - start
    last = 0
    while last < end and first[-1 - last] == second[-1 - last]:
        last += 1
    first, second = first[: len(first) - last], second[: len(second) - last]
    if not first or not second:
        return len(first) + len(second) <= MAX_DISTANCE
    # Both ends differ, so that one change is at the start and one at the end.
    return any(
        first[a : len(first) - c] == second[b : len(second) - d] for a, b in _CHANGES for c, d in _CHANGES
    )
