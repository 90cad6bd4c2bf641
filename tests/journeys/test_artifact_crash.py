"""Processes killed between writing an object and committing its row: no reference dangles, and leftovers are
removed.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from easel.host.artifacts import Artifacts
from easel.ids import OWNER, ArtifactId
from easel.stores.blobs.store import STAGING, open_blobs
from tests.journeys.soak import short_or_full
from tests.requirements import case, rule
from tests.stores.harness import Store, open_store
from tests.support.artifact_crasher import CANVAS, LIMIT, WAYS, contents
from tests.support.artifacts import aged_name, id_of
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400.0
GRACE = 7 * DAY
KILLS = short_or_full(60, 200)
# Most lives end between object and commit; the others elsewhere, or normally.
ORDER = [0, 1, 0, 1, 2, 0, 1, 3, 0, 5, 1, 0, 1, 0, 4, 1, 0, 6, 1, 7]
SWEEPING = [8]
LIVES = short_or_full(120, 320)
SURVIVOR = 9  # the first one that is not killed
TIMEOUT = 250.0
KNOWN = {id_of(contents(number)): contents(number) for number in range(LIVES)}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("database_url") if request.param == "postgres" else ""


@case("D7")
@pytest.mark.soak
@pytest.mark.timeout(600)
@rule("CC-24")
async def test_kills_between_object_and_commit_leave_nothing_dangling(url: str, tmp_path: Path) -> None:
    root = tmp_path / "blobs"
    store = await prepared(url, tmp_path)
    await store.close()
    plan = {"database_url": url, "folder": str(tmp_path), "blobs": str(root), "survivor": SURVIVOR}
    lives = await led(**plan, lives=LIVES, ways=ORDER)
    ends = collections.Counter((life["does"], life["dies"]) for life in lives if life["was_killed"])
    assert ends["keep", "after the object"] + ends["upload", "after the object"] >= KILLS
    assert set(ends) == {way for way in WAYS if way[0] != "sweep" and way[1] != "never"}, (
        "a planned kill did not happen"
    )

    acknowledged = {ArtifactId(life["acknowledged"]) for life in lives if life["acknowledged"]}
    await check_all_is_there(await opened(url, tmp_path), root, acknowledged)
    [sweeper] = await led(**plan, lives=1, ways=SWEEPING)
    assert sweeper["was_killed"]
    await check_only_what_is_referred_to_is_left(await opened(url, tmp_path), root, acknowledged)


async def opened(url: str, folder: Path) -> Store:
    return await open_store("postgres" if url else "sqlite", folder=folder, database_url=url)


async def prepared(url: str, folder: Path) -> Store:
    store = await opened(url, folder)
    await store.sql(
        f"insert into canvases (account_id, canvas_id, agent_id, title, spec, state) values ('owner', "
        f"'{CANVAS}', 'main', '', '{{}}', '{{}}')"
    )
    return store


async def led(**plan: Any) -> list[dict[str, Any]]:
    """Run all lives of a plan and return their reports."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = (sys.executable, "-m", "tests.support.artifact_crasher", json.dumps(plan))
    pipe = asyncio.subprocess.PIPE
    crasher = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe
    )
    try:
        out, problems = await asyncio.wait_for(crasher.communicate(), TIMEOUT)
    finally:
        if crasher.returncode is None:
            crasher.kill()
            await crasher.wait()
    assert crasher.returncode == 0, problems.decode()
    return [json.loads(line) for line in out.splitlines()]


def story_of(store: Store, root: Path) -> Artifacts:
    return Artifacts(store.database.artifacts, open_blobs(str(root)), max_bytes=LIMIT, grace_seconds=GRACE)


async def check_all_is_there(store: Store, root: Path, acknowledged: set[ArtifactId]) -> None:
    """Check that every referenced and acknowledged artifact is complete, and that young ones are not swept.
    Then advance a week.
    """
    story = story_of(store, root)
    references = {row["artifact_id"] for row in await store.sql("select artifact_id from artifact_refs")}
    whole = {
        row["artifact_id"] for row in await store.sql("select artifact_id from artifacts where is_stored")
    }
    assert acknowledged == references
    assert references < whole, "no process was killed before the reference"
    for artifact_id in whole:
        assert await story.read(OWNER, artifact_id) == KNOWN[artifact_id]
    keys = await keys_of(store)
    assert keys - keys_in(root), "no process was killed before the object"
    assert keys_in(root) - keys, "no process was killed before an object was removed"
    assert await story.sweep() == 0
    assert await keys_of(store) == keys
    await make_old(store, root)
    await store.close()


async def check_only_what_is_referred_to_is_left(
    store: Store, root: Path, acknowledged: set[ArtifactId]
) -> None:
    """Check that another sweep completes one that was killed between the rows and their blobs."""
    story = story_of(store, root)
    assert keys_in(root) - await keys_of(store), "the sweep had removed no row"
    await make_old(store, root)
    assert await story.sweep() > 0
    assert {
        row["artifact_id"] for row in await store.sql("select artifact_id from artifacts")
    } == acknowledged
    assert await keys_of(store) == keys_in(root)
    for artifact_id in acknowledged:
        assert await story.read(OWNER, artifact_id) == KNOWN[artifact_id]
    assert await story.sweep() == 0
    assert await open_blobs(str(root)).sweep() > 0
    assert list((root / STAGING).iterdir()) == [], (
        "what was being written when its writer died has no name, and goes too"
    )
    await store.close()


async def keys_of(store: Store) -> set[str]:
    return {row["blob_key"] for row in await store.sql("select blob_key from artifacts")}


def keys_in(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and STAGING not in path.parts
    }


async def make_old(store: Store, root: Path) -> None:
    await store.sql(f"update artifacts set touched_at = {store.ago(GRACE + DAY)}")
    for key in keys_in(root) - await keys_of(store):  # a blob without a row has its age in its name
        (root / key).rename((root / key).with_name(aged_name(GRACE + DAY, (root / key).name)))
    for draft in (root / STAGING).iterdir():
        os.utime(draft, (0, 0))
