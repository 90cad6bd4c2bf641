"""The HTTP server of each floor: uvicorn on uvloop and httptools, no access log, a free loopback port printed
on stdout.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from starlette.applications import Starlette

_BACKLOG = 2048
# Hundreds of viewers connect at once.


def serve(app: Starlette) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        backlog=_BACKLOG,
        timeout_graceful_shutdown=1,
    )
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))
