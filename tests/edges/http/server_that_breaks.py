"""`easel` with one part broken on purpose, for tests of what is logged then: looking up a run breaks, and quotes what was asked.

`python -m tests.edges.http.server_that_breaks up --port 0`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from easel.cli import app as cli
from easel.host.runs.queue import RunQueue

if TYPE_CHECKING:
    from easel.core.principal import Principal


async def break_down(self: RunQueue, principal: Principal, run_id: str) -> Never:
    raise RuntimeError(f"no luck with {run_id}")


RunQueue.get = break_down

if __name__ == "__main__":
    cli.main()
