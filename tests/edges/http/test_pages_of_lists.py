"""Pages of lists: at most 1 MB each, and `next` continues without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from easel.edges.paging import MAX_PAGE_BYTES, read_page
from tests.edges.http.live import WAITING, new_session
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.edges.http.live import LiveEasel

WORDS = "many words " * 22_500  # 247,500 bytes


def read_all(easel: LiveEasel, path: str, name: str, **query: str) -> tuple[list[Any], int]:
    """Return the items of all pages, in the order of the pages, and how many pages there were."""
    items: list[Any] = []
    count, before = 0, dict[str, str]()
    while True:
        answer = easel.get(path, params={"limit": "200", **query, **before})
        assert len(answer.content) <= 1_048_576
        page = answer.json()
        items += page[name] if name == "runs" else reversed(page[name])
        count += 1
        if "next" not in page:
            return items, count
        before = {"before": str(page["next"])}


def test_hundred_long_messages_come_in_pages_of_at_most_one_megabyte(easel: LiveEasel) -> None:
    session = new_session()
    run_id = easel.finish("noop", session)
    for number in range(100):
        easel.sql(
            "insert into messages (account_id, session_id, thread_seq, message_id, run_id, role, content)"
            f" values ('owner', '{session}', {1_000 + number}, 'msg_{number}', '{run_id}', 'assistant',"
            f" '\"{number} {WORDS}\"')"
        )
    messages, page_count = read_all(easel, f"/api/sessions/{session}/messages", "messages")
    assert [message["text"] for message in messages] == [
        *(f"{number} {WORDS}" for number in reversed(range(100))),
        "",
        "noop",
    ]
    assert page_count >= 25


@rule("RS-62")
def test_input_of_a_listed_run_is_cut_and_of_a_single_run_is_whole(easel: LiveEasel) -> None:
    session = new_session()
    first = easel.start(WAITING, session)
    for number in range(6):
        easel.start(f"{number} {WORDS}", session)
    runs, page_count = read_all(easel, "/api/runs", "runs", session_id=session)
    assert (len(runs), page_count) == (7, 1)
    assert [(run["input_text"][0], run["truncated"]) for run in runs[:-1]] == [(n, True) for n in "543210"]
    assert all(500 < len(run["input_text"]) <= 1_024 for run in runs[:-1])
    assert "truncated" not in runs[-1]
    whole = easel.view(runs[0]["run_id"])
    assert (whole["input_text"], "truncated" in whole) == (f"5 {WORDS}", False)
    for run in [*runs[:-1], {"run_id": first}]:
        easel.cancel(run["run_id"])


class Numbers:
    """A list of the numbers below `count`; records which steps were read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.steps: list[int] = []

    async def read(self, cursor: int | None, limit: int) -> list[int]:
        self.steps.append(limit)
        first = -1 if cursor is None else cursor
        return list(range(self.count))[first + 1 : first + 1 + limit]


async def pages_of(numbers: Numbers, size: int, limit: int) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: int | None = None
    while True:
        views, cursor = await read_page(
            numbers.read,
            to_view=lambda number: str(number).ljust(size),
            position=int,
            start=cursor,
            limit=limit,
        )
        pages.append(views)
        if cursor is None:
            return pages


@pytest.mark.parametrize("size, limit", [(3, 50), (100_000, 50), (400_000, 200), (2_000_000, 10), (9, 7)])
async def test_every_item_is_on_one_page(size: int, limit: int) -> None:
    numbers = Numbers(103)
    pages = await pages_of(numbers, size, limit)
    assert [int(view) for page in pages for view in page] == list(range(103))
    assert all(len(page) <= limit for page in pages)
    assert all(len(page) == 1 or sum(map(len, page)) <= MAX_PAGE_BYTES for page in pages)


async def test_short_items_are_read_in_two_steps_and_long_ones_in_small_steps() -> None:
    short, long = Numbers(500), Numbers(500)
    assert len((await pages_of(short, 10, 200))[0]) == 200
    assert short.steps[:2] == [20, 180]
    await pages_of(long, 90_000, 200)
    assert max(long.steps) <= 22
