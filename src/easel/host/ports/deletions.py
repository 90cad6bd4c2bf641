"""Port of deleted sessions and canvases: the rows that are still to be purged."""

from typing import Protocol


class DeletionStore(Protocol):
    """Sessions and canvases that are deleted, but whose rows are not purged yet.

    A step is one short transaction. It deletes a bounded number of rows of the session or canvas that was
    deleted first, and returns how many. 0 means that nothing is left, or that other workers purge the rest.
    """

    async def purge_session(self) -> int: ...

    async def purge_canvas(self) -> int: ...
