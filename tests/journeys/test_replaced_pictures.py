"""A canvas that replaces a picture all the time needs as much room as its retention time, not as its age."""

from __future__ import annotations

import asyncio
import base64
import os
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.journeys.client import Client
from tests.journeys.soak import short_or_full
from tests.requirements import rule
from tests.support.processes import Launcher
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

PICTURES = short_or_full(80, 600)
INTERVAL_SECONDS = short_or_full(0.3, 1.0)
SECONDS = PICTURES * INTERVAL_SECONDS
RETENTION_SECONDS = SECONDS / 10
# After its retention time a picture is released and swept within some intervals of these jobs.
GRACE_SECONDS = short_or_full(9, 60)
SWEEP_SECONDS = short_or_full(1, 10)
MAX_ARTIFACTS = short_or_full(40, 200)
# The machine may pause: the picture is replaced until the room is small again, for at most this long.
MAX_DELAY_SECONDS = 60
CANVAS = "shots"


class Data:
    """The data folder of an Easel that uses SQLite, seen from outside."""

    def __init__(self, folder: Path) -> None:
        self._database = folder / "easel.db"
        self._blobs = folder / "blobs"

    def count(self, table: str) -> int:
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as connection:
            return connection.execute(f"select count(*) from {table}").fetchone()[0]

    def blob_count(self) -> int:
        return sum(path.is_file() for path in self._blobs.glob("accounts/*/artifacts/*"))


async def call(client: Client, method: str, **params: Any) -> dict[str, Any]:
    answer = await client.post("/api/rpc", {"method": method, "params": {"canvasId": CANVAS, **params}})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def replace_picture(client: Client) -> str:
    picture = base64.b64encode(os.urandom(3_000)).decode()
    await call(client, "canvas.patch", statePatch=[{"op": "add", "path": "/shot", "value": picture}])
    return picture


@rule("RS-35")
@pytest.mark.soak
@pytest.mark.timeout(SECONDS + MAX_DELAY_SECONDS + 120)
async def test_replaced_pictures_are_deleted_after_the_retention_time(tmp_path: Path) -> None:
    settings = {
        "RETENTION_DAYS": f"{RETENTION_SECONDS / 86_400:f}",
        "ARTIFACT_DAYS": f"{GRACE_SECONDS / 86_400:f}",
        "SWEEP_SECONDS": str(SWEEP_SECONDS),
    }
    data, highest, count = Data(tmp_path / "data"), 0, 0
    with Launcher(tmp_path, settings=settings) as launcher:
        up = launcher.up()
        await asyncio.to_thread(launcher.ready, up)
        async with Client(up) as client:
            await call(client, "canvas.create", state={"shot": ""})
            began = time.monotonic()
            picture = ""
            while count < PICTURES or data.blob_count() > MAX_ARTIFACTS:
                elapsed = time.monotonic() - began
                assert elapsed < SECONDS + MAX_DELAY_SECONDS, f"{data.blob_count()} blobs are left"
                picture = await replace_picture(client)
                count += 1
                highest = max(highest, data.blob_count())
                await asyncio.sleep(max(0.0, began + count * INTERVAL_SECONDS - time.monotonic()))
            rows, blobs = data.count("artifacts"), data.blob_count()
            print(f"{count} pictures, at the end {rows} artifacts, {blobs} blobs, at most {highest} blobs")
            assert rows <= MAX_ARTIFACTS
            await wait_for(
                lambda: data.blob_count() <= 1 and data.count("artifact_refs") <= 2,
                within=SECONDS + MAX_DELAY_SECONDS,
                what="only the picture of the state is left",
            )
            marker = (await call(client, "canvas.get"))["state"]["shot"]
            assert (await client.get(marker["uri"])).text == picture
    assert "Traceback" not in up.output()
