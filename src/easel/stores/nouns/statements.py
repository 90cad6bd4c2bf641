"""What the store of a plain noun knows of a database: named statements with plain arguments.

Arguments may be lists and times, and columns named `*_at` are times, on both databases. A statement of several in one transaction is a step of a generator: it yields a name and its
arguments, and gets the rows.
"""

from collections.abc import Generator, Mapping
from typing import Any, Protocol, TypeVar

Row = Any  # a mapping; the types of its columns depend on the statement
Answer = TypeVar("Answer")
Steps = Generator[tuple[str, Mapping[str, Any]], list[Row], Answer]


class Statements(Protocol):
    """The statements of one noun in `stores/sql`, on one database."""

    async def rows(self, name: str, /, **arguments: Any) -> list[Row]: ...

    async def row(self, name: str, /, **arguments: Any) -> Row | None: ...

    async def transaction(self, steps: Steps[Answer]) -> Answer: ...
