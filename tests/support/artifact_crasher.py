"""Processes that are killed with kill -9 while they store artifacts: `python -m
tests.support.artifact_crasher PLAN`, PLAN being JSON.

Each life is a process of its own, forked before anything is opened, so that two hundred of them take seconds.
It opens the database and the blobs as Easel does, stores or uploads one content, refers to it, and is killed
at its point or ends normally; or it sweeps. Every life prints one line: its number, its planned end and the
artifact that it acknowledged, if any.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from easel.host.artifacts.artifacts import Artifacts
from easel.ids import OWNER, CanvasId
from easel.stores.blobs.store import Blobs, open_blobs
from easel.stores.postgres import open_postgres
from easel.stores.sqlite import open_sqlite
from tests.support.artifacts import id_of, offloaded
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CANVAS = CanvasId("drill")
LIMIT = 10_000_000

# The plan of a life: its operation and the point at which it is killed.
WAYS = [
    ("keep", "after the object"),
    ("upload", "after the object"),
    ("keep", "before the object"),
    ("upload", "in the object"),
    ("keep", "before the reference"),
    ("keep", "never"),
    ("upload", "never"),
    ("upload", "before an object goes"),
    ("sweep", "before an object goes"),
]


@dataclass(frozen=True)
class Life:
    number: int
    does: str
    dies: str
    content: bytes


def contents(number: int) -> bytes:
    """Return the contents of all lives. Some repeat an earlier one, so that leftovers of killed processes are
    reused.
    """
    return f"content {number % 191} ".encode() * 400


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class DeadlyBlobs:
    """The real blob store, which kills the process at the planned point."""

    def __init__(self, blobs: Blobs, life: Life) -> None:
        self._blobs = blobs
        self._life = life

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def put(self, key: str, data: Any, **how: Any) -> int:
        if self._life.dies == "before the object":
            die()
        size = await self._blobs.put(key, data, **how)
        if self._life.dies == "after the object":
            die()
        return size

    async def delete(self, key: str) -> None:
        if self._life.dies == "before an object goes":
            die()
        await self._blobs.delete(key)


async def pieces(life: Life) -> AsyncIterator[bytes]:
    for start in range(0, len(life.content), 1_000):
        yield life.content[start : start + 1_000]
    if life.dies == "in the object":
        die()


async def live(life: Life, plan: dict[str, str]) -> None:
    url = plan["database_url"]
    database = await (
        open_postgres(url, pool=1)
        if url
        else open_sqlite(Path(plan["folder"]) / "easel.db", synchronous="normal")
    )
    blobs = cast(Blobs, DeadlyBlobs(open_blobs(plan["blobs"]), life))
    story = Artifacts(database.artifacts, blobs, max_bytes=LIMIT, grace_seconds=7 * 86_400)
    if life.does == "sweep":
        await story.sweep()
        return
    if life.does == "keep":
        await story.store(OWNER, offloaded(life.content))
    else:
        await story.upload(THE_OWNER, pieces(life))
    if life.dies == "before the reference":
        die()
    await database.artifacts.add_references(OWNER, [id_of(life.content)], canvas_id=CANVAS)
    await database.close()


def main() -> None:
    plan = json.loads(sys.argv[1])
    for number in range(plan["lives"]):
        does, dies = WAYS[plan["ways"][number % len(plan["ways"])]]
        # A second object exists only after a first one.
        life = Life(
            number, does, dies, contents(plan["survivor"] if dies == "before an object goes" else number)
        )
        child = os.fork()
        if child == 0:
            asyncio.run(live(life, plan))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not was_killed and status != 0:
            sys.exit(f"life {number} broke with {status}")
        told = {"number": number, "does": life.does, "dies": life.dies, "was_killed": was_killed}
        print(json.dumps({**told, "acknowledged": None if was_killed else id_of(life.content)}), flush=True)


if __name__ == "__main__":
    main()
