"""Tool nodes as their users run them: real processes, two APIs and a worker on Postgres, and one process on
SQLite; killed, stopped, cut off.
"""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import psutil
import pytest

from easel.edges.gateway.connection import NODE_HEARTBEAT_SECONDS
from tests.journeys.client import Client, call, script
from tests.requirements import case, rule
from tests.support.postgres import create_database, drop_database
from tests.support.processes import EASEL, EaselProcess, Launcher
from tests.support.standstill import Stopwatch
from tests.support.waiting import wait_for, wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODE_SECONDS = 4.0
# EASEL_NODE_TTL_SECONDS here: when a node counts as offline after its instance stops renewing it; users have
# 6 s.
CLAIM_SECONDS = 6.0
# EASEL_CLAIM_SECONDS, of which the caller of a node has two thirds; users have 15 s.
AT_ONCE_SECONDS = 3.0
# "Fails at once", measured from outside on a busy machine; the call itself would take a minute.
LONG = "echo begun; sleep 60"


@dataclass
class Yard:
    """Two APIs and a worker that share nothing but Postgres, and a folder that nodes may use."""

    launcher: Launcher
    apis: list[EaselProcess]
    worker: EaselProcess
    folder: Path

    def client(self) -> Client:
        return Client(*self.apis)

    def node(self, *, at: int = 0, name: str = "laptop", token: str | None = None) -> EaselProcess:
        url = f"ws{self.apis[at].base_url.removeprefix('http')}/ws"
        return start_node(self.launcher, url, self.folder, name=name, token=token)


def start_node(
    launcher: Launcher, url: str, folder: Path, *, name: str = "laptop", token: str | None = None
) -> EaselProcess:
    command = (*EASEL, "node", "--id", name, "--url", url, "--root", str(folder), "--sandbox", "logical")
    return launcher.start("node", command, {"TOKEN": token} if token else {})


@pytest.fixture(scope="module")
def module_yard(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    url = create_database(postgres)
    settings = {
        "CLAIM_SECONDS": str(CLAIM_SECONDS),
        "NODE_TTL_SECONDS": str(NODE_SECONDS),
    }
    folder = tmp_path_factory.mktemp("root")
    with Launcher(tmp_path_factory.mktemp("yard"), url, settings) as launcher:
        apis = [launcher.api(), launcher.api()]
        launcher.ready(*apis)
        yield Yard(launcher, apis, launcher.worker(), folder)
    drop_database(postgres, url.rpartition("/")[2])


@pytest.fixture
def yard(module_yard: Yard) -> Iterator[Yard]:
    """All processes running; the nodes of the previous test have ended."""
    for index, one in enumerate(module_yard.apis):
        if not one.is_alive:
            module_yard.apis[index] = module_yard.launcher.again(one)
    module_yard.launcher.ready(*module_yard.apis)
    # A node's name must not be found for the previous test's node, whose end is not known everywhere yet.
    wait_for_sync(
        lambda: not any(map(nodes_at, module_yard.apis)),
        within=60,
        what="the nodes of the test before are gone",
    )
    before = len(module_yard.launcher.started)
    yield module_yard
    for one in module_yard.launcher.started[before:]:
        if one.name.startswith("node"):
            one.clear_away()


def nodes_at(api: EaselProcess) -> list[str]:
    body = {"method": "nodes.list", "params": {}}
    answer = httpx2.post(
        f"{api.base_url}/api/rpc",
        json=body,
        headers={"Authorization": f"Bearer {api.token}"},
        timeout=20,
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    return [
        node["nodeId"] for node in answer.json()["nodes"] if node["nodeId"] != "local"
    ]  # the machine of the API itself


async def rpc(client: Client, method: str, at: int = 0, **params: Any) -> Any:
    answer = await client.post("/api/rpc", {"method": method, "params": params}, at)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def wait_until_online(
    client: Client, name: str = "laptop", *, within: float = 60, at: int = 0
) -> float:
    async def is_listed() -> bool:
        return any(node["nodeId"] == name for node in (await rpc(client, "nodes.list", at))["nodes"])

    return await wait_for(is_listed, within=within, what=f"the node {name} is there")


async def wait_until_offline(
    client: Client, name: str = "laptop", *, within: float = 60, at: int = 0
) -> float:
    async def is_not_listed() -> bool:
        return all(node["nodeId"] != name for node in (await rpc(client, "nodes.list", at))["nodes"])

    return await wait_for(is_not_listed, within=within, what=f"the node {name} is gone")


async def results_of(client: Client, run_id: str, *, within: float = 60) -> list[dict[str, Any]]:
    """Return the results of a run's tools, once it has ended."""
    events = await client.follower(run_id).read_to_end(within=within)
    return [event.data for event in events if event.type == "tool.result"]


async def command_pid(folder: Path, name: str) -> int:
    """Return the process of a command that has written its number into this file."""
    path = folder / name

    async def is_there() -> bool:
        return path.exists() and path.read_text().strip().isdigit()

    await wait_for(is_there, within=60, what=f"{name} is written")
    return int(path.read_text())


def easel(launcher: Launcher, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, beside the running processes."""
    one = launcher.start("command", (*EASEL, *arguments), {})
    one.process.wait(60)
    lines = [line for line in one.output().splitlines() if line]
    assert one.process.returncode == 0, one.output()
    return subprocess.CompletedProcess(arguments, 0, "\n".join(lines))


def new_token(launcher: Launcher, *arguments: str) -> tuple[str, str]:
    said = easel(launcher, "token", "create", "--kind", "node", *arguments).stdout
    secret = next(line for line in said.splitlines() if line.startswith("easel_"))
    token_id = said.partition("Created ")[2].partition(",")[0]
    return token_id, secret


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- calls from any instance
# -----------------------------------------------------------------------------------


@rule("CV-03")
async def test_call_reaches_a_node_from_any_instance(yard: Yard) -> None:
    """The node is at the first API; the worker's agent and the second API's canvas call it."""
    (yard.folder / "note.txt").write_text("from the node's own disk\n")
    yard.node(at=0)
    async with yard.client() as client:
        await wait_until_online(client, at=1)
        tools = {tool["name"]: tool for tool in (await client.get("/api/tools", 1)).json()["tools"]}
        assert {name for name in tools if name.startswith("laptop__")} == {
            f"laptop__{tool}" for tool in ("Bash", "Read", "Write", "Edit", "Glob", "Grep")
        }
        assert tools["laptop__Bash"]["runs_on"] == "laptop"
        run_id = await client.start(
            script(call("laptop__Bash", command="cat note.txt; pwd"), call("laptop__Read", path="note.txt"))
        )
        bash, read = await results_of(client, run_id)
        assert bash["result"]["output"] == f"from the node's own disk\n{yard.folder}\n"
        assert "from the node's own disk" in str(read["result"])
        spec = {
            "version": 1,
            "toolPolicy": {"allow": ["laptop__Read"]},
            "state": {},
            "actions": {
                "read": {
                    "kind": "tool.call",
                    "tool": "laptop__Read",
                    "args": {"path": "note.txt"},
                    "saveAs": "note",
                }
            },
        }
        await rpc(client, "canvas.create", 1, canvasId="on-a-node", spec=spec)
        pressed = await rpc(client, "canvas.action", 1, canvasId="on-a-node", actionId="read")
        assert pressed["status"] == "completed"
        shown = await rpc(client, "canvas.get", 0, canvasId="on-a-node")
        assert "from the node's own disk" in str(shown["state"]["note"])


async def test_node_that_moves_to_the_other_api_is_found_there(yard: Yard) -> None:
    first = yard.node(at=0)
    async with yard.client() as client:
        await wait_until_online(client)
        yard.node(at=1)

        async def has_ended() -> bool:
            return not first.is_alive

        await wait_for(has_ended, within=60, what="the first is replaced")
        assert "Another node has connected as laptop" in first.output()
        [answer] = await results_of(
            client, await client.start(script(call("laptop__Bash", command="echo here")))
        )
        assert answer["result"]["output"] == "here\n"


# --- disconnects
# -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill -9", "SIGTERM"])
async def test_call_fails_at_once_when_its_node_ends(yard: Yard, how: str) -> None:
    node = yard.node()
    async with yard.client() as client:
        await wait_until_online(client)
        run_id = await client.start(
            script(call("laptop__Bash", command=f"echo $$ > {how[:4]}.pid; {LONG}"), {"say": "went on"})
        )
        await command_pid(yard.folder, f"{how[:4]}.pid")
        watch = Stopwatch()
        if how == "SIGTERM":
            await asyncio.to_thread(node.terminate, AT_ONCE_SECONDS)
            assert node.process.returncode == 0, node.last_output()
        else:
            node.kill()
        [answer] = await results_of(client, run_id)
        assert watch.seconds < AT_ONCE_SECONDS
        assert "node laptop disconnected before it answered" in str(answer)
        assert await wait_until_offline(client, at=1) < AT_ONCE_SECONDS
        assert (await client.run(run_id))["status"] == "completed", "the agent reads why, and goes on"


@case("R4")
async def test_node_that_hangs_is_detected_within_seconds_and_reconnects(yard: Yard) -> None:
    node = yard.node()
    async with yard.client() as client:
        await wait_until_online(client)
        run_id = await client.start(script(call("laptop__Bash", command=f"echo $$ > hang.pid; {LONG}")))
        await command_pid(yard.folder, "hang.pid")
        node.freeze()
        watch = Stopwatch()
        [answer] = await results_of(client, run_id)
        assert watch.seconds < 2 * NODE_HEARTBEAT_SECONDS + AT_ONCE_SECONDS
        assert "disconnected" in str(answer)
        for at in (0, 1):
            await wait_until_offline(client, at=at)  # so that a node found afterwards has reconnected
        node.thaw()
        await wait_until_online(client)
        [answer] = await results_of(
            client, await client.start(script(call("laptop__Bash", command="echo back")))
        )
        assert answer["result"]["output"] == "back\n"


@pytest.mark.parametrize("how", ["kill -9", "SIGTERM"])
async def test_calls_fail_soon_when_the_api_of_the_node_ends_and_the_node_reconnects(
    yard: Yard, how: str
) -> None:
    node = yard.node(at=0)
    async with yard.client() as client:
        await wait_until_online(client, at=1)
        pid_file = f"api-{how[:4]}.pid"
        run_id = await client.start(
            script(call("laptop__Bash", command=f"echo $$ > {pid_file}; {LONG}")), at=1
        )
        pid = await command_pid(yard.folder, pid_file)
        watch = Stopwatch()
        if how == "SIGTERM":
            await asyncio.to_thread(yard.apis[0].terminate, 20)
        else:
            yard.apis[0].kill()
        watching = Client(yard.apis[1])
        async with watching:
            [answer] = await results_of(watching, run_id)
            assert watch.seconds < (NODE_SECONDS if how == "kill -9" else 0) + AT_ONCE_SECONDS
            assert "disconnected" in str(answer)
            await wait_until_offline(watching)

            async def is_stopped() -> bool:
                return not is_running(pid)

            await wait_for(is_stopped, within=60, what="the command has no caller left, so it is stopped")
            assert node.is_alive
            yard.apis[0] = yard.launcher.again(yard.apis[0])
            yard.launcher.ready(yard.apis[0])
            await wait_until_online(watching)
            [answer] = await results_of(
                watching, await watching.start(script(call("laptop__Bash", command="echo again")))
            )
            assert answer["result"]["output"] == "again\n"
        assert "Retrying in" in node.output()


@case("X8", "X9")
async def test_when_the_api_is_killed_that_asked_the_command_does_not_go_on_at_the_node(yard: Yard) -> None:
    """A retry after the failure would otherwise run the command twice at once."""
    yard.node(at=0)
    async with yard.client() as client:
        await wait_until_online(client, at=1)
        command = {
            "kind": "tool.call",
            "tool": "laptop__Bash",
            "args": {"command": f"echo $$ > asked.pid; {LONG}"},
            "confirm": "never",
        }
        spec = {"version": 1, "toolPolicy": {"allow": ["laptop__Bash"]}, "actions": {"go": command}}
        await rpc(client, "canvas.create", canvasId="asked", spec=spec)
        pressing = asyncio.create_task(rpc(client, "canvas.action", 1, canvasId="asked", actionId="go"))
        pid = await command_pid(yard.folder, "asked.pid")
        yard.apis[1].kill()
        await asyncio.gather(pressing, return_exceptions=True)

        async def is_stopped() -> bool:
            return not is_running(pid)

        await wait_for(
            is_stopped,
            within=CLAIM_SECONDS * 2 / 3 + AT_ONCE_SECONDS,
            what="the command has no caller left",
        )


@case("X8")
async def test_cancelled_run_leaves_no_process_on_the_node(yard: Yard) -> None:
    """Neither the command nor its background processes remain, across two instances."""
    yard.node(at=0)
    async with yard.client() as client:
        await wait_until_online(client)
        command = "sleep 1000 & echo $! > child.pid; (sleep 1000; true) & echo $$ > parent.pid; wait"
        run_id = await client.start(script(call("laptop__Bash", command=command)))
        pids = [await command_pid(yard.folder, name) for name in ("child.pid", "parent.pid")]
        assert all(map(is_running, pids))
        assert (await client.cancel(run_id, at=1)).status_code == 202

        async def all_gone() -> bool:
            return not any(map(is_running, pids))

        await wait_for(all_gone, within=AT_ONCE_SECONDS, what="the processes of the command are gone")
        await client.wait_for(run_id, {"cancelled"}, within=30)
        [answer] = await results_of(
            client, await client.start(script(call("laptop__Bash", command="echo alive")))
        )
        assert answer["result"]["output"] == "alive\n"


# --- tokens -------------------------------------------------------------------------------------------------


@case("O9")
async def test_node_token_is_created_used_and_revoked_beside_running_processes(yard: Yard) -> None:
    token_id, secret = new_token(yard.launcher, "--name", "the laptop", "--node", "laptop")
    listed = easel(yard.launcher, "token", "list").stdout
    assert token_id in listed
    assert "the laptop (only as laptop)" in listed
    assert secret not in listed
    node = yard.node(token=secret)
    async with yard.client() as client:
        await wait_until_online(client)
        other = yard.node(name="desktop", token=secret)

        async def is_refused() -> bool:
            return not other.is_alive

        await wait_for(is_refused, within=60, what="it is for no other node")
        assert "this token is bound to the node laptop" in other.output()
        assert other.process.returncode == 2
        easel(yard.launcher, "token", "revoke", token_id)
        assert await wait_until_offline(client, at=1) < AT_ONCE_SECONDS
        await wait_for(
            lambda: _has_said(node, "does not know this token"),
            within=60,
            what="it reports the refused token",
        )
        assert node.is_alive
        assert secret not in node.output() + other.output()


async def _has_said(one: EaselProcess, part: str) -> bool:
    return part in one.output()


@rule("CV-03")
async def test_on_sqlite_a_token_is_created_beside_the_server_and_used_by_the_node(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    with Launcher(tmp_path / "up") as launcher:
        [up] = launcher.ready(launcher.up())
        token_id, secret = new_token(launcher)
        start_node(launcher, up.base_url, folder, token=secret)
        async with Client(up) as client:
            await wait_until_online(client)
            run_id = await client.start(
                script(
                    call("laptop__Write", path="made.txt", content="by an agent"),
                    call("laptop__Glob", pattern="*"),
                )
            )
            written, found = await results_of(client, run_id)
            assert (folder / "made.txt").read_text() == "by an agent", written
            assert "made.txt" in str(found)
            refused = await results_of(
                client, await client.start(script(call("laptop__Read", path="/etc/passwd")))
            )
            assert "outside" in str(refused), "bug 14 of GSV: absolute paths were taken as they came"
            easel(launcher, "token", "revoke", token_id)
            assert await wait_until_offline(client) < AT_ONCE_SECONDS
        assert "The audit chain is intact" in easel(launcher, "audit", "verify").stdout
