"""The database as the store of a plain noun sees it: named statements with plain arguments.

Arguments may be lists and times, and columns named `at` or `*_at` are times, on both databases. Several
statements in one transaction are the steps of a generator: it yields the name of a statement and its
arguments, and is sent the rows. So it needs no `await`, which the writer of SQLite could not do.
"""

from collections.abc import Generator, Mapping
from typing import Any, Protocol, TypeVar

Row = Any  # a mapping; the types of its columns depend on the statement
Answer = TypeVar("Answer")
Steps = Generator[tuple[str, Mapping[str, Any]], list[Row], Answer]


class Statements(Protocol):
    """The statements of one noun in `stores/sql`, on one database."""

    async def rows(self, name: str, /, **arguments: Any) -> list[Row]:
        """Run a statement and return its rows."""
        ...

    async def row(self, name: str, /, **arguments: Any) -> Row | None:
        """Run a statement and return its first row, None if there is none."""
        ...

    async def transaction(self, steps: Steps[Answer]) -> Answer:
        """Run the statements of the steps in one transaction, which is rolled back if a step fails."""
        ...
