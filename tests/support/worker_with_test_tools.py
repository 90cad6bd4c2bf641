"""`easel worker` with misbehaving tools and faults at named points: `python -m
tests.support.worker_with_test_tools`.

Production code has no hooks for tests, so this entry replaces three of Easel's parts before the command line
is imported: more native tools, a run store that ends the process at `JOURNEY_CRASH_AT`, is unavailable for
the first calls of `JOURNEY_AWAY_AT` or broken in a call of `JOURNEY_BREAK_AT`, a worker that does not renew
its claims (`JOURNEY_BLIND`), and a wall clock that is wrong by `JOURNEY_CLOCK_SKEW_SECONDS`. Everything else
is the worker that users run.
"""

# ruff: noqa: PLC0415  Easel's parts are imported after what stands in for others is in place
from __future__ import annotations

import asyncio
import datetime as datetime_module
import functools
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

CRASHED = 77  # the exit status of a crash on purpose
HOLD_SECONDS = 600.0
# Longer than any drill: a tool that holds is ended from outside.


# --- tools --------------------------------------------------------------------------------------------------


async def die(_: Mapping[str, Any]) -> NoReturn:
    """End the worker's process at once."""
    os._exit(1)


async def hold_child(args: Mapping[str, Any]) -> None:
    """Start a child process, write its id to the file and wait for it; the child ends with the call."""
    child = await asyncio.create_subprocess_exec("sleep", str(HOLD_SECONDS))
    try:
        write_whole(Path(args["pid_file"]), json.dumps({"pid": child.pid}))
        await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def heartbeat(args: Mapping[str, Any]) -> None:
    """Write the time repeatedly until cancelled."""
    while True:
        add(Path(args["file"]), f"{time.time()}\n")
        await asyncio.sleep(args["every_ms"] / 1000)


async def count(args: Mapping[str, Any]) -> int:
    """Count the calls with this file and return the count."""
    return add(Path(args["file"]), "x")


async def count_and_hold(args: Mapping[str, Any]) -> int:
    counted = await count(args)
    await asyncio.sleep(HOLD_SECONDS)
    return counted


async def count_and_hold_once(args: Mapping[str, Any]) -> int:
    """Block in the first call; return in the second."""
    counted = await count(args)
    if counted == 1:
        await asyncio.sleep(HOLD_SECONDS)
    return counted


def add(path: Path, text: str) -> int:
    """Append text to the file and return its size."""
    with path.open("a") as file:
        file.write(text)
        return file.tell()


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)


def add_tools() -> None:
    from easel.core.tool.definition import ToolDefinition
    from easel.host.tools import native as native_tools
    from easel.host.tools.native import NativeTool

    def tool(
        name: str,
        work: Callable[[Mapping[str, Any]], Awaitable[Any]],
        *,
        repeatable: bool = False,
        **args: str,
    ) -> NativeTool:
        properties = {name: {"type": kind} for name, kind in args.items()}
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(args),
            "additionalProperties": False,
        }
        return NativeTool(
            ToolDefinition(f"test__{name}", (work.__doc__ or name).strip(), schema, idempotent=repeatable),
            lambda args, _: work(args),
        )

    ordinary = native_tools.native_tools
    native_tools.native_tools = lambda: [
        *ordinary(),
        tool("Die", die, repeatable=True),
        tool("HoldChild", hold_child, pid_file="string"),
        tool("Heartbeat", heartbeat, repeatable=True, file="string", every_ms="integer"),
        tool("Count", count, file="string"),
        tool("CountAndHold", count_and_hold, file="string"),
        tool("CountAndHoldOnce", count_and_hold_once, repeatable=True, file="string"),
    ]


# --- crashes ------------------------------------------------------------------------------------------------


def crash_at(point: str) -> None:
    """End the process, as kill -9 would, between two particular statements of the run store."""
    from easel.stores.postgres.runs import PostgresRuns

    def crashing(
        name: str, *, before: Callable[..., bool] | None = None, after: Callable[..., bool] | None = None
    ) -> None:
        ordinary = getattr(PostgresRuns, name)

        @functools.wraps(ordinary)
        async def wrapped(self: PostgresRuns, *args: Any, **kwargs: Any) -> Any:
            if before and before(*args):
                os._exit(CRASHED)
            answer = await ordinary(self, *args, **kwargs)
            if after and after(answer, *args):
                os._exit(CRASHED)
            return answer

        setattr(PostgresRuns, name, wrapped)

    match point:
        case "after_claim":
            crashing("claim_queued", after=lambda claims, *_: bool(claims))
        case "after_first_append":
            crashing("append", after=lambda _answer, batch: batch.number == 1)
        case "before_finish":
            crashing("append", before=lambda batch: batch.ends_as is not None)
        case "after_finish":
            crashing("append", after=lambda _answer, batch: batch.ends_as is not None)
        case _:
            sys.exit(f"there is no crash point {point!r}")


# --- unavailable and broken stores
# ---------------------------------------------------------------------------


def fail_at(method: str, calls: range, problem: Callable[[], Exception]) -> None:
    """Raise in these calls of a method of the run store (counted from 0); all others work."""
    from easel.stores.postgres.runs import PostgresRuns

    ordinary = getattr(PostgresRuns, method)
    numbers = itertools.count()

    @functools.wraps(ordinary)
    async def wrapped(self: PostgresRuns, *args: Any, **kwargs: Any) -> Any:
        if next(numbers) in calls:
            raise problem()
        return await ordinary(self, *args, **kwargs)

    setattr(PostgresRuns, method, wrapped)


def be_away_at(method: str) -> None:
    from easel.errors import Unavailable

    fail_at(method, range(3), lambda: Unavailable(what="The database"))


def break_at(method: str) -> None:
    """Raise an unexpected error, ours or the driver's, in the third call."""
    fail_at(method, range(2, 3), lambda: RuntimeError("broken on purpose"))


# --- a worker without renewals
# -------------------------------------------------------------------------------


def be_blind() -> None:
    """Disable renewing and checking of claims, so that only the store can reject late writes."""
    from easel.host.runs.worker import RunWorker

    async def notice_nothing(self: RunWorker) -> None:
        await asyncio.sleep(HOLD_SECONDS)

    RunWorker.stop_expiring_runs = notice_nothing
    RunWorker.renew_claims = notice_nothing


# --- the clock ----------------------------------------------------------------------------------------------


def skew_clock(seconds: float) -> None:
    """Shift the wall clock of this process; the monotonic clock stays right."""
    true_time, true_time_ns, true_datetime = time.time, time.time_ns, datetime_module.datetime

    class AnyDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, true_datetime)

    class SkewedDatetime(true_datetime, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: datetime_module.tzinfo | None = None) -> datetime_module.datetime:
            return true_datetime.now(tz) + datetime_module.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> datetime_module.datetime:
            return true_datetime.now(datetime_module.UTC).replace(tzinfo=None) + datetime_module.timedelta(
                seconds=seconds
            )

    time.time = lambda: true_time() + seconds
    time.time_ns = lambda: true_time_ns() + int(seconds * 1e9)
    datetime_module.datetime = SkewedDatetime


def main() -> None:
    if skew := float(os.environ.get("JOURNEY_CLOCK_SKEW_SECONDS", "0")):
        skew_clock(skew)  # before Easel is imported, so that every module sees the shifted clock
    add_tools()
    if point := os.environ.get("JOURNEY_CRASH_AT"):
        crash_at(point)
    if os.environ.get("JOURNEY_BLIND"):
        be_blind()
    if method := os.environ.get("JOURNEY_AWAY_AT"):
        be_away_at(method)
    if method := os.environ.get("JOURNEY_BREAK_AT"):
        break_at(method)
    from easel.cli.app import main as easel

    sys.argv = ["easel", "worker"]
    easel()


if __name__ == "__main__":
    main()
