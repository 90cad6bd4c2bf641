"""The expected result of a mixed load: the logs of runs, threads and canvases in Postgres, and their
invariants.

Owns reading everything that a mixed load stored and comparing it with what the watchers received. Starts no
process and sends nothing; it fetches only artifacts that markers refer to.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.journeys.mixed_watchers import INTERNAL, NARRATIVE, STATE, VISUALS
from tests.journeys.stored_runs import Row, check_law

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import asyncpg

    from tests.journeys.mixed_watchers import Transport
    from tests.journeys.stored_runs import StoredRuns
    from tests.support.sse import Event

LIMIT = 2_048
UNBROKEN = re.compile(r"[A-Za-z0-9+/_-]{2049,}")
BREAKS = re.compile(r"\\[nrt]|\s")
SAMPLE = re.compile(r"[A-Za-z0-9+/_-]{40}")
STRIDE = LIMIT // 2
# A sample at this interval finds any stretch of a planted text that is over the limit.


def as_received(row: Row) -> tuple[int, str, str, dict[str, Any]]:
    """Return an event as its envelope shows it: its time to the millisecond."""
    return row.seq, row.type, row.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), row.data


def received_tuples(events: Iterable[Event]) -> list[tuple[int, str, str, dict[str, Any]]]:
    return [(event.seq, event.type, event.ts, event.data) for event in events]


@dataclass
class Truth:
    runs: dict[str, asyncpg.Record]
    sessions: dict[str, asyncpg.Record]
    logs: dict[tuple[str, str], list[Row]] = field(default_factory=lambda: defaultdict(list))
    """By (kind, name), kind being that of a transport."""
    authors: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """By thread, in order: the author ("user", "run", or "none" for a run never started) and the run."""

    @classmethod
    async def read(cls, stored_runs: StoredRuns, sessions: Sequence[str], canvases: Sequence[str]) -> Truth:
        found = await stored_runs.fetch("select * from sessions where session_id = any($1)", list(sessions))
        runs = await stored_runs.fetch(
            "select * from runs where session_id = any($1) order by queue_no", list(sessions)
        )
        truth = cls({row["run_id"]: row for row in runs}, {row["session_id"]: row for row in found})
        for run_id, log in (await stored_runs.logs(list(truth.runs))).items():
            truth.logs["run", run_id] = log
        threads = """
            select session_id, thread_seq, event_type, payload, visibility, created_at, run_id,
                   case when seq > 0 then 'run' else 'delta of user' end as author
              from run_events where session_id = any($1) and thread_seq is not null
            union all
            select session_id, thread_seq, 'message.completed', payload, 'public', created_at, run_id,
                   case role when 'user' then 'user' else 'none' end
              from messages where session_id = any($1) and payload is not null
            order by session_id, thread_seq"""
        for row in await stored_runs.fetch(threads, list(sessions)):
            truth.logs["thread", row["session_id"]].append(_row(row, row["thread_seq"]))
            truth.authors[row["session_id"]].append((row["author"], row["run_id"]))
        for row in await stored_runs.fetch(
            """
            select e.canvas_id, e.seq, e.event_type, e.visibility, e.created_at,
                   e.payload || jsonb_build_object('agentId', c.agent_id) as payload
              from canvas_events e join canvases c using (account_id, canvas_id)
             where e.canvas_id = any($1) order by e.canvas_id, e.seq""",
            list(canvases),
        ):
            truth.logs["canvas", row["canvas_id"]].append(_row(row, row["seq"]))
        return truth

    def expected(self, transport: Transport, name: str) -> list[Row]:
        return [row for row in self.logs[transport.kind, name] if transport.allows(row.type, row.visibility)]

    def types_in(self, kind: str) -> set[str]:
        return {row.type for (its_kind, _), log in self.logs.items() if its_kind == kind for row in log}

    # -- numbers

    def check_numbers(self) -> None:
        """Check that no log has a gap, and that a thread is the narrative of its runs, in order, with their
        messages. RS-34
        """
        for (kind, name), log in self.logs.items():
            wrong = next((nth for nth, row in enumerate(log, 1) if row.seq != nth), None)
            near = (
                []
                if wrong is None
                else [
                    (row.seq, row.type, row.at, str(row.data)[:120])
                    for row in log[max(0, wrong - 4) : wrong + 3]
                ]
            )
            assert wrong is None, f"a gap or a repeated number in {kind} {name}, near {near}"
        for run_id, run in self.runs.items():
            check_law(run, self.logs["run", run_id])
        for session_id, session in self.sessions.items():
            assert session["last_thread_seq"] == len(self.logs["thread", session_id])
            self._check_thread(session_id)

    def _check_thread(self, session_id: str) -> None:
        authors, log = self.authors[session_id], self.logs["thread", session_id]
        runs = [run_id for run_id, run in self.runs.items() if run["session_id"] == session_id]
        assert [run_id for author, run_id in authors if author == "user"] == runs, (
            "messages and their runs have one order"
        )
        run_ids = [run_id for author, run_id in authors if author == "run"]
        in_turn = [run_id for run_id, _ in itertools.groupby(run_ids)]
        assert in_turn == [run_id for run_id in runs if run_id in set(run_ids)], (
            "one run at a time speaks, in the order of the messages"
        )
        never_started = [run_id for author, run_id in authors if author == "none"]
        assert all(self.runs[run_id]["status"] == "cancelled" for run_id in never_started), (
            "only the chat shows a run that never started"
        )
        assert not set(never_started) & set(run_ids)
        for run_id in runs:
            of_run = [
                (row.type, row.data)
                for (author, whose), row in zip(authors, log, strict=True)
                if (author, whose) == ("run", run_id)
            ]
            narrative = [(row.type, row.data) for row in self.logs["run", run_id] if row.type in NARRATIVE]
            assert of_run == narrative, f"the thread does not have exactly the narrative of {run_id}"

    # -- members of an event

    def check_events(self) -> None:
        """Check visibility, provenance and size of every logged event. CC-10, CC-16, CC-25, CC-32"""
        belongs = {"run": NARRATIVE | STATE, "thread": NARRATIVE, "canvas": VISUALS}
        for (kind, name), log in self.logs.items():
            for row in log:
                story = f"{kind} {name} {row}"[:1_000]
                assert row.type in belongs[kind], story
                assert (
                    row.visibility
                    == row.data["visibility"]
                    == ("internal" if row.type in INTERNAL else "public")
                ), story
                assert weight(row.data) <= LIMIT, f"{weight(row.data)} bytes: {story}"
                if row.type in ("message.delta", "reasoning.delta"):
                    # RS-62
                    assert isinstance(row.data["text"], str), story
                    assert "truncated" not in row.data, story
                if row.type in STATE | VISUALS:
                    self._check_provenance(kind, name, row, story)

    def _check_provenance(self, kind: str, name: str, row: Row, story: str) -> None:
        said = row.data["provenance"]
        has_edge = row.type == "blackboard.write"
        assert set(said) == {"kind", "agent_id", "node_id", "run_id"} | (
            {"edge_id"} if has_edge else set()
        ), story
        assert all(isinstance(value, str) and value for value in said.values()), story
        assert "mallory" not in said.values(), story
        if kind == "run":
            assert said["run_id"] == name, story
        if has_edge:
            assert said["edge_id"] in ("a-b", "b-c"), story

    def markers(self) -> dict[str, dict[str, Any]]:
        """Return every marker of an offloaded value, by its uri."""
        found: dict[str, dict[str, Any]] = {}
        for log in self.logs.values():
            for row in log:
                found |= {marker["uri"]: marker for marker in _markers(row.data)}
        return found


def _row(row: asyncpg.Record, seq: int) -> Row:
    return Row(seq, row["event_type"], json.loads(row["payload"]), row["visibility"], row["created_at"])


def _markers(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.get("redacted") is True:
            yield value
        else:
            for part in value.values():
                yield from _markers(part)
    elif isinstance(value, list):
        for part in value:
            yield from _markers(part)


def weight(data: dict[str, Any]) -> int:
    """Return the bytes of the compact JSON of an event's own data. RS-35"""
    own = {key: value for key, value in data.items() if key not in ("visibility", "provenance")}
    return len(json.dumps(own, ensure_ascii=False, separators=(",", ":")).encode())


def check_marker(marker: dict[str, Any], content: bytes) -> None:
    assert (len(content), hashlib.sha256(content).hexdigest()) == (
        marker["original_size"],
        marker["sha256"],
    ), marker


# --- everything stored --------------------------------------------------------------------------------------


async def everything_stored(stored_runs: StoredRuns) -> list[tuple[str, str]]:
    """Yield (where, text) of every value of every text or JSON column of every table."""
    columns = await stored_runs.fetch(
        "select table_name, column_name from information_schema.columns where table_schema = 'public'"
        " and data_type in ('text', 'character varying', 'json', 'jsonb', 'ARRAY', 'USER-DEFINED', 'bytea', "
        "'xml')"
    )
    found: list[tuple[str, str]] = []
    for table, column in columns:
        rows = await stored_runs.fetch(f'select "{column}"::text from "{table}" where "{column}" is not null')
        found += [(f"{table}.{column}", row[0]) for row in rows]
    return found


def check_nothing_encoded(texts: Iterable[tuple[str, str]], planted: Sequence[str]) -> None:
    """Check that no value has Base64 above 2 KB: neither in one piece nor planted, however it was split.
    CC-23, CC-32
    """
    everything = "\0".join(planted)
    for where, text in texts:
        if len(text) <= LIMIT:
            continue
        if found := UNBROKEN.search(text):
            raise AssertionError(f"{len(found[0])} characters of Base64 in {where}: {text[:300]}")
        plain = BREAKS.sub("", text)
        for at in range(0, len(plain), STRIDE):
            sample = SAMPLE.match(plain, at)
            if sample and (place := everything.find(sample[0])) >= 0:
                length = common(plain[at:], everything[place:]) + common(
                    plain[:at][::-1], everything[:place][::-1]
                )
                assert length <= LIMIT, f"{length} characters of a planted picture in {where}: {text[:300]}"


def check_no_pixels(texts: Iterable[tuple[str, str]], pictures: Iterable[bytes]) -> None:
    """Check that no value has a picture, however small and however its bytes are written. CC-08"""
    everything = "\n".join(text for _, text in texts)
    for picture in pictures:
        for written in (
            base64.b64encode(picture[:36]).decode(),
            picture[8:36].hex(),
            picture[8:36].decode("latin-1"),
        ):
            assert written not in everything, written


def common(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = zip(one, other, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
