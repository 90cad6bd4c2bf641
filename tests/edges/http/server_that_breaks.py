"""`easel` with a defect, for tests of the log: GET /api/runs/{run_id} raises an error that quotes the run id.

`python -m tests.edges.http.server_that_breaks up --port 0`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from easel.cli import app as cli
from easel.host.runs.queue import RunQueue

if TYPE_CHECKING:
    from easel.core.principal import Principal


async def raise_error(self: RunQueue, principal: Principal, run_id: str) -> Never:
    raise RuntimeError(f"no luck with {run_id}")


RunQueue.get = raise_error

if __name__ == "__main__":
    cli.main()
