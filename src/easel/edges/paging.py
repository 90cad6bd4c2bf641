"""Pages of lists: at most `limit` items, and at most MAX_PAGE_BYTES of JSON.

Owns where a page ends. The items are read in small steps, so that a page of long items never holds `limit` of
them in memory. Does not know stores or transports.
"""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

DEFAULT_PAGE_ITEMS = 500  # of a list that is in memory already
MAX_PAGE_ITEMS = 1_000
MAX_PAGE_BYTES = 1_000_000  # of the items of one page as JSON; only a single item may be longer
FIRST_STEP = 20  # items that are read before their size is known
STEP_BYTES = 2_000_000  # of the items of a later step, as estimated from the steps before

Item = TypeVar("Item")
Cursor = TypeVar("Cursor")

_encode = msgspec.json.Encoder().encode


async def read_page(
    read: Callable[[Cursor | None, int], Awaitable[Sequence[Item]]],
    to_view: Callable[[Item], Any],
    position: Callable[[Item], Cursor],
    *,
    start: Cursor | None,
    limit: int,
    step: int = FIRST_STEP,
    weight: Callable[[Item], int] | None = None,
) -> tuple[list[Any], Cursor | None]:
    """Return the views of one page, and the cursor of the next page: None if there is none.

    `read(cursor, count)` returns the items after the cursor in the order of the list; `position` returns the
    cursor after an item. `step` is how many are read first; `limit` for items that are always short. `weight`
    is the size of an item in memory if its view is much shorter.
    """
    views: list[Any] = []
    cursor, size, read_bytes = start, 0, 0
    while len(views) < limit:
        step = min(step, limit - len(views))
        items = await read(cursor, step)
        for item in items:
            view = to_view(item)
            view_size = len(_encode(view)) + 1
            if views and size + view_size > MAX_PAGE_BYTES:
                return views, cursor
            views.append(view)
            cursor = position(item)
            size += view_size
            read_bytes += weight(item) if weight else view_size
        if len(items) < step:
            return views, None
        step = max(1, STEP_BYTES * len(views) // max(1, read_bytes))
    return views, cursor


async def read_list_page(
    items: Iterable[Item],
    to_view: Callable[[Item], Any],
    position: Callable[[Item], str],
    *,
    start: str | None,
    limit: int,
) -> tuple[list[Any], str | None]:
    """Return one page of a list that is in memory, in the order of `position`; as `read_page`."""
    ordered = sorted(items, key=position)

    async def read(after: str | None, count: int) -> Sequence[Item]:
        first = 0 if after is None else bisect_right(ordered, after, key=position)
        return ordered[first : first + count]

    return await read_page(read, to_view=to_view, position=position, start=start, limit=limit)
