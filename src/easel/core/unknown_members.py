"""Unknown members of a request: which are ignored with a warning, and which are refused. RS-67

Owns the words that must not be lost and the distance at which a name resembles one of them. Does not know how
a request was encoded, nor which members it may have.
"""

from collections.abc import Collection, Iterable
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


def resembles(name: str, words: Iterable[str]) -> bool:
    """Return whether a name differs from one of the words by case, `_`, `-` and at most two letters."""
    letters = letters_of(name)
    return any(_are_within(MAX_DISTANCE, letters, letters_of(word)) for word in words)


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


def _are_within(changes: int, first: str, second: str) -> bool:
    """Return whether at most so many letters are added, removed or replaced."""
    if abs(len(first) - len(second)) > changes:
        return False
    start = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    if start is None:
        return True
    first, second = first[start:], second[start:]
    others = ((first[1:], second[1:]), (first[1:], second), (first, second[1:]))
    return changes > 0 and any(_are_within(changes - 1, *other) for other in others)
