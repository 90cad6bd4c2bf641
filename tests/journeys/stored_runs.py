"""The stored state behind a journey: reads Postgres directly and checks it.

Owns direct reads of `runs` and `run_events` and the invariants of every finished run. Opens a connection for
each query, since drills stop the database.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg

from tests.journeys.client import TERMINAL
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from tests.support.sse import Event

CONNECT_SECONDS = 30


# A backend shows its latest statement: the notifier listens, notifies, or checks its connection.
LISTENERS = (
    "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and (query ~* '(^|\\s)(listen|pg_notify)' or query = 'select 1')"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One event as it is stored."""

    seq: int
    type: str
    data: dict[str, Any]
    visibility: str
    at: datetime


@dataclass(frozen=True, slots=True)
class StoredRuns:
    database_url: str

    async def fetch(self, sql: str, *args: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.database_url, timeout=CONNECT_SECONDS)
        try:
            return await connection.fetch(sql, *args, timeout=60)
        finally:
            await connection.close(timeout=CONNECT_SECONDS)

    async def value(self, sql: str, *args: object) -> Any:
        rows = await self.fetch(sql, *args)
        return rows[0][0] if rows else None

    async def run(self, run_id: str) -> asyncpg.Record:
        (row,) = await self.fetch("select * from runs where run_id = $1", run_id)
        return row

    async def log(self, run_id: str) -> list[Row]:
        return (await self.logs([run_id]))[run_id]

    async def logs(self, run_ids: Collection[str]) -> dict[str, list[Row]]:
        logs: dict[str, list[Row]] = {run_id: [] for run_id in run_ids}
        found = await self.fetch(
            "select * from run_events where run_id = any($1) and seq > 0 order by run_id, seq", list(run_ids)
        )
        for row in found:
            logs[row["run_id"]].append(
                Row(
                    row["seq"],
                    row["event_type"],
                    json.loads(row["payload"]),
                    row["visibility"],
                    row["created_at"],
                )
            )
        return logs

    async def statuses(self, run_ids: Collection[str]) -> dict[str, str]:
        rows = await self.fetch("select run_id, status from runs where run_id = any($1)", list(run_ids))
        return {row["run_id"]: row["status"] for row in rows}

    async def has_listeners(self, processes: int) -> bool:
        """Whether that many processes listen for notifications."""
        return await self.value(f"select count(*) {LISTENERS}") >= processes

    async def is_at_rest(self) -> bool:
        """Whether no transaction is open: a process that is frozen now holds no lock."""
        busy = "application_name like 'easel%' and state <> 'idle'"
        return (
            await self.value(
                f"select count(*) from pg_stat_activity where datname = current_database() and {busy}"
            )
            == 0
        )

    async def wait_until_all_ended(self, run_ids: Collection[str], *, within: float) -> None:
        unfinished: dict[str, str] = {}

        async def have_ended() -> bool:
            nonlocal unfinished
            unfinished = {
                run_id: status
                for run_id, status in (await self.statuses(run_ids)).items()
                if status not in TERMINAL
            }
            return not unfinished

        try:
            await wait_for(have_ended, within=within, what="all runs have ended")
        except AssertionError as late:
            stuck = await self.fetch(
                "select run_id, session_id, status, attempt, owner_id, lease_until, now() as now, last_seq "
                "from runs where run_id = any($1)"
                " order by run_id limit 5",
                list(unfinished),
            )
            raise AssertionError(
                f"{late}; {len(unfinished)} have not, such as {[dict(row) for row in stuck]}"
            ) from None

    async def check(
        self,
        run_ids: Collection[str],
        *,
        ends: Mapping[str, str] | str = "completed",
        says: Mapping[str, str] | str | None = None,
    ) -> None:
        """Check that every run exists, has the expected outcome and text, and that its log keeps the
        invariants.
        """
        rows = {
            row["run_id"]: row
            for row in await self.fetch("select * from runs where run_id = any($1)", list(run_ids))
        }
        assert set(rows) == set(run_ids), f"lost runs: {set(run_ids) - set(rows)}"
        logs = await self.logs(run_ids)
        for run_id, run in rows.items():
            check_law(run, logs[run_id])
            expected = ends if isinstance(ends, str) else ends[run_id]
            assert run["status"] == expected, (run_id, run["status"], run["error_message"])
            if says is not None:
                text = says if isinstance(says, str) else says[run_id]
                assert answer_in(logs[run_id])["text"] == text, run_id


def answer_in(log: Sequence[Row]) -> dict[str, Any]:
    (answer,) = [row.data for row in log if row.type == "message.completed"]
    return answer


def starts_in(log: Sequence[Row]) -> list[Row]:
    return [row for row in log if row.type == "run.start"]


def after_last_start(log: Sequence[Row]) -> list[Row]:
    return [row for row in log if row.seq > starts_in(log)[-1].seq]


def said_in(rows: Sequence[Row]) -> str:
    return "".join(row.data["text"] for row in rows if row.type == "message.delta")


def check_law(run: asyncpg.Record, log: Sequence[Row]) -> None:
    """Check the invariants of every run that has ended. RX-25, RX-28, RX-34, RX-35, RX-49"""
    story = (
        f"{run['run_id']}: {[(row.seq, row.type) for row in log][:3]} … "
        f"{[(row.seq, row.type, row.data) for row in log][-6:]}"
    )
    assert run["status"] in TERMINAL, story
    assert run["finished_at"] is not None, story
    assert [row.seq for row in log] == list(range(1, len(log) + 1)), f"a gap or a repeated number in {story}"
    assert run["last_seq"] == len(log), story
    assert [row.seq for row in log if row.type == "done"] == [len(log)], (
        f"not exactly one done, at the end: {story}"
    )
    assert log[-1].data["status"] == run["status"], story
    assert [
        row.data["status"] for row in log if row.type == "run.status" and row.data["status"] in TERMINAL
    ] == [run["status"]], story
    answers = [row for row in log if row.type == "message.completed"]
    attempts = [row.data["attempt"] for row in starts_in(log)]
    assert attempts == sorted(set(attempts)), f"an attempt started twice: {attempts} in {story}"
    assert len(attempts) <= run["max_attempts"], story
    if attempts:
        # Boards may be written before a worker claims the run.
        assert (
            next(row.type for row in log if row.type not in ("whiteboard.write", "blackboard.write"))
            == "run.start"
        ), story
        assert [answer.data["status"] for answer in answers] == [run["status"]], story
    else:
        # Cancelled in the queue, or every attempt was lost before its first text.
        assert run["status"] in ("cancelled", "failed"), story
    if run["status"] == "failed":
        assert run["error_message"], story


def check_delivery(delivered: Sequence[Event], log: Sequence[Row], *, after: int = 0) -> None:
    """Check that a client that read to the end has exactly the public log after its cursor. RX-34, RX-48"""
    public = [(row.seq, row.type, row.data) for row in log if row.visibility == "public" and row.seq > after]
    assert [(event.seq, event.type, event.data) for event in delivered] == public
