"""All problems of one document together, so that its author can correct them at once.

Owns collecting them, their limit, and the hint at the nearest known word. Does not know any document. A part
is parsed by a function that raises `BadInput`; the problem is collected, and the parser goes on with the next
part. At the end `raise_all` raises one `BadInput` for all of them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

from easel.core.validation import EXTENSION_PREFIX, find_nearest
from easel.errors import BadInput, HostError

MAX_PROBLEMS = 20  # in one error; the rest is counted
MAX_PATH_LENGTH = 300  # characters of a path in an error

Given = ParamSpec("Given")
Parsed = TypeVar("Parsed")
Default = TypeVar("Default")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem at one place of a document."""

    path: str
    text: str
    word: str = ""  # the unknown word, if it may be a misspelt one
    known: Collection[str] = ()

    def describe(self) -> str:
        text = f"{self.text}{hint_at(self.word, self.known)}"
        return text if text.endswith((".", "?")) else f"{text}."

    def sentence(self) -> str:
        """Return the problem with its path."""
        return f"{self.path}: {self.describe()}" if self.path else self.describe()


class Problems:
    """Collects the problems of one document."""

    def __init__(self) -> None:
        self._first: list[Problem] = []
        self._count = 0

    def add(self, path: str, text: str, *, word: str = "", known: Collection[str] = ()) -> None:
        self._count += 1
        if len(self._first) < MAX_PROBLEMS:
            self._first.append(Problem(_shorten(path), escape_unprintable(text), word, known))

    def take(
        self, default: Default, parse: Callable[Given, Parsed], *args: Given.args, **options: Given.kwargs
    ) -> Parsed | Default:
        """Return the result of `parse`. If it raises `BadInput`, collect the problem and return `default`."""
        try:
            return parse(*args, **options)
        except BadInput as problem:
            path, separator, text = problem.message.partition(": ")
            self.add(path, text) if separator else self.add("", path)
            return default

    def check_members(self, members: Mapping[str, Any], known: Collection[str], at: str) -> None:
        """Collect every member that is not in `known`, unless its name begins with `x-`."""
        for name in members:
            if name not in known and not name.startswith(EXTENSION_PREFIX):
                self.add(f"{at}.{name}" if at else name, "is unknown", word=name, known=known)

    def raise_all(self, what: str) -> None:
        """Raise `BadInput` if there are problems: the problem itself, or a list of them about `what`."""
        if not self._count:
            return
        described = [{"path": problem.path, "problem": problem.describe()} for problem in self._first]
        lines = [problem.sentence() for problem in self._first]
        more = self._count - len(described)
        if self._count > 1:
            lines = [
                f"{what} has {self._count} problems:",
                *(f"- {line}" for line in lines),
                *([f"- and {more} more."] if more else []),
            ]
        raise BadInput(problem="\n".join(lines), problems=described, **({"more": more} if more else {}))


def hint_at(word: str, known: Collection[str]) -> str:
    """Return the end of a sentence about an unknown word: the nearest known one, and which are known."""
    if not word:
        return ""
    nearest = find_nearest(word, known)
    listed = f"known are {', '.join(sorted(known))}" if 0 < len(known) <= MAX_PROBLEMS else ""
    hints = [f"did you mean `{nearest}`?" if nearest else "", listed]
    return f"; {' '.join(filter(None, hints))}" if any(hints) else ""


def problems_of(error: HostError) -> Iterable[Mapping[str, str]]:
    """Return the collected problems of an error, each with `path` and `problem`; none for any other error."""
    return cast("Iterable[Mapping[str, str]]", error.details.get("problems", ()))


def escape_unprintable(text: str) -> str:
    """Return the text with unprintable characters escaped, so that a terminal does not interpret them."""
    return (
        text
        if text.isprintable()
        else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    )


def _shorten(path: str) -> str:
    shown = escape_unprintable(path[:MAX_PATH_LENGTH])
    return shown if len(path) <= MAX_PATH_LENGTH else f"{shown}…"
