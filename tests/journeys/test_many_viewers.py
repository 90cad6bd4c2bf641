"""Five hundred viewers of one run: each receives every event, once and in order. `make bench fanout` measures
the speed.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.journeys.client import call, script, ticks
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.journeys.conftest import Cluster

VIEWERS = 500
TICKS = 60
CALLS = [call("gsv__Echo", value=number) for number in range(10)]
ID = re.compile(rb"^id: (\d+)$", re.MULTILINE)


async def ids_seen(base_url: str, token: str, run_id: str) -> list[int]:
    """Read with as little work as possible and return the ids until the connection was closed."""
    place = urlsplit(base_url)
    head = (
        f"GET /api/runs/{run_id}/events HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer "
        f"{token}\r\nConnection: close\r\n\r\n"
    )
    async with asyncio.timeout(90):
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            writer.write(head.encode())
            return [int(seq) for seq in ID.findall(await reader.read(-1))]
        finally:
            writer.close()


@case("E9")
@rule("RX-34", "RS-01")
async def test_five_hundred_viewers_on_two_instances_receive_the_whole_log(cluster: Cluster) -> None:
    async with cluster.client() as client:
        # Delayed deltas are merged into one event; a tool call is two events at any pace.
        run_id = await client.start(script({"wait_ms": 2_000}, ticks(TICKS, 20), *CALLS))
        seen = await asyncio.gather(
            *(ids_seen(client.base_urls[number % 2], client.token, run_id) for number in range(VIEWERS))
        )
    shown = [row.seq for row in await cluster.stored_runs.log(run_id) if row.data["visibility"] == "public"]
    assert len(shown) > 2 * len(CALLS)
    assert seen == [shown] * VIEWERS
