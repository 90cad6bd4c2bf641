"""Secrets in the actions of canvases: used by tools, and found nowhere afterwards. RS-66"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets as random_secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from easel.core.tool.definition import ToolDefinition
from easel.errors import ToolFailed
from easel.host.audit.audit import agent_of
from easel.ids import OWNER, RunId
from tests.edges.gateway.action_fixtures import ANY, TestTool, expect_refusal, run_inside
from tests.edges.gateway.node_peer import NodePeer, new_tool
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from easel.core.tool.context import ToolContext

BASH: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string", "x-shell": True}},
    "required": ["command"],
    "x-secrets": True,
}
STRICT: dict[str, Any] = {"type": "object", "properties": {"token": {"type": "string", "maxLength": 3}}}


def new_values() -> dict[str, str]:
    """Return 20 secrets of different shapes."""
    core = [f"Leak{number:02}{random_secrets.token_hex(10)}" for number in range(20)]
    shapes = [
        "{}",
        "{} \"quoted\" and \\ 'single'",
        "{}\nof two\r\nlines\t",
        "ümlaut {} 😀 ß",
        "sk-{}",
        "{}/path+plus=x&y %41",
        "-----BEGIN PRIVATE KEY-----\n{}\nAAAA\n-----END PRIVATE KEY-----",
        "<script>{}</script>",
        "$({}) `x` ;",
        "{}" + "0123456789abcdef" * 100,
    ]
    values = {f"S{number:02}": shapes[number % 10].format(text) for number, text in enumerate(core)}
    values["S10"] = values["S00"] + "-longer"  # S00 is its beginning
    values["S11"] = base64.b64encode(core[11].encode()).decode()
    values["S12"] = str(int(random_secrets.token_hex(6), 16) + 10**14)
    return values


def forms(value: str) -> set[str]:
    """Return what must not be found; a part of a long value counts too."""
    data = value.encode()
    return {
        value[:60],
        json.dumps(value)[1:-1][:60],
        quote(value, safe="")[:60],
        *(base64.b64encode(b"x" * pad + data).decode()[4:44] for pad in range(3)),
    }


@dataclass
class Leaky:
    """Tools that return, print and raise what they are given."""

    calls: list[tuple[dict[str, Any], ToolContext]] = field(
        default_factory=list[tuple[dict[str, Any], "ToolContext"]]
    )

    def tools(self) -> list[TestTool]:
        def tool(name: str, work: Any, schema: dict[str, Any] = ANY, **hints: bool) -> TestTool:
            return TestTool(ToolDefinition(f"leak__{name}", name, schema, **hints), work, self.calls)

        return [
            tool("Echo", self._echo, read_only=True),
            tool("Fail", self._fail),
            tool("Crash", self._crash),
            tool("Strict", self._echo, STRICT),
            tool("Bash", self._bash, BASH),
        ]

    async def _echo(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        token = args["token"]
        if context.on_output is not None:
            for piece in (token[:3], token[3:7], token[7:] + "\n", token * 2, token[:9]):
                context.on_output(piece)
                await asyncio.sleep(0)
        encoded = base64.b64encode(b"user:" + token.encode()).decode()
        number: Any = int(token) if token.isdigit() else 0
        large = {"large": base64.b64encode((token * 200).encode()).decode()} if args.get("large") else {}
        url = f"http://host/?key={quote(token)}"
        found = {"token": token, token: [json.dumps(token), encoded], "url": url, "number": number}
        return {**found, **large}

    async def _fail(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        raise ToolFailed(tool="leak__Fail", reason=f"refused {args['token']!r} {args['token']}")

    async def _crash(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        raise ValueError(f"bad token {args['token']}")

    async def _bash(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return {"env": dict(context.env or {}), "command": args["command"]}


@dataclass
class Scene:
    easel: LiveEasel
    leaky: Leaky
    log: list[dict[str, Any]]
    values: dict[str, str] = field(default_factory=new_values)
    answers: list[str] = field(default_factory=list[str])

    def store(self) -> None:
        for name, value in self.values.items():
            answer = self.easel.ask("PUT", f"/api/secrets/{name}", json={"value": value})
            assert answer.status_code == 204, answer.text

    async def run(self, client: GatewayClient, canvas: str, action: str, **params: Any) -> Any:
        """Run an action, confirm it if asked, and keep every answer. Returns the last one, also an error."""
        outcome: Any
        try:
            outcome = await client.call("canvas.action", canvasId=canvas, actionId=action, **params)
            self.answers.append(json.dumps(outcome, ensure_ascii=False))
            if outcome["status"] == "needs_confirmation":
                outcome = await client.call(
                    "canvas.confirm", confirmationId=outcome["confirmationId"], approve=True
                )
        except Refused as problem:
            outcome = {"error": str(problem)}
        self.answers.append(json.dumps(outcome, ensure_ascii=False))
        return outcome

    def places(self) -> dict[str, str]:
        """Return everything that was stored, logged or answered, by place."""
        tables = (
            "select table_name as name from information_schema.tables where table_schema = 'public'"
            if self.easel.database_url
            else "select name from sqlite_master where type = 'table'"
        )
        found = {"answers": "\n".join(self.answers), "log": repr(self.log)}
        for row in self.easel.sql(tables):
            rows = self.easel.sql(f'select * from "{row["name"]}"')
            found[f"table {row['name']}"] = "\n".join(
                str(bytes(value)) + bytes(value).decode("latin-1")
                if isinstance(value, (bytes, memoryview))
                else str(value)
                for one in rows
                for value in one.values()
            )
        for path in self.easel.folder.rglob("*"):
            if path.is_file():
                found[f"file {path.name}"] = path.read_bytes().decode("utf-8", "replace")
        return found


@pytest.fixture(scope="module", params=("sqlite", "postgres"))
def scene(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    package_log: list[dict[str, Any]],
) -> Iterator[Scene]:
    """One instance on SQLite, or two on Postgres."""
    with contextlib.ExitStack() as stack:
        url, edges = "", 1
        if request.param == "postgres":
            server = request.getfixturevalue("postgres")
            url, edges = create_database(server), 2
            stack.callback(drop_database, server, url.rpartition("/")[2])
        leaky = Leaky()
        settings = {"poll_seconds": 0.1, "secret_key": "k" * 32}
        easel = stack.enter_context(
            LiveEasel(tmp_path_factory.mktemp("easel"), url, edges, False, settings, leaky.tools())
        )
        package_log.clear()
        made = Scene(easel, leaky, package_log)
        made.store()
        yield made


STORED_BY_EASEL = {
    "kind": "tool.call",
    "tool": "gsv__Canvas",
    "args": {"operation": "upsert", "canvasId": "copy", "state": {"key": {"$secret": "S00"}}},
}


def call(tool: str, name: str, **members: Any) -> dict[str, Any]:
    return {"kind": "tool.call", "tool": tool, "args": {"token": {"$secret": name}}, **members}


def spec_of(actions: dict[str, Any], names: list[str], **members: Any) -> dict[str, Any]:
    tools = sorted({action["tool"] for action in actions.values() if "tool" in action})
    return {"toolPolicy": {"allow": tools, "secrets": names}, "actions": actions, **members}


async def new_canvas(client: GatewayClient, spec: dict[str, Any]) -> str:
    name = new_session()
    await client.call("canvas.create", canvasId=name, spec=spec)
    return name


async def answer_as_leaky_node(peer: NodePeer, seen: list[dict[str, Any]]) -> None:
    """Answer every call with all that it contains, as live output, result or error."""
    while True:
        payload = (await peer.client.event()).payload
        seen.append(payload)
        text = json.dumps(payload, ensure_ascii=False)
        token = payload["args"].get("token", "") or "".join(payload.get("env", {}).values())
        for piece in (token[:5], token[5:], f" {token} "):
            await peer.client.call("tool.progress", callId=payload["callId"], text=piece)
        if payload["tool"] == "Fail":
            await peer.answer(payload["callId"], error=f"no: {token} {text}")
        else:
            await peer.answer(
                payload["callId"], result={token or "k": [token, text], "env": payload.get("env")}
            )


@rule("RS-66")
@case("P6")
async def test_no_secret_is_found_outside_of_its_table(scene: Scene) -> None:
    easel, names = scene.easel, sorted(scene.values)
    node_tools = [new_tool("Echo"), new_tool("Fail"), new_tool("Bash", BASH)]
    seen: list[dict[str, Any]] = []
    actions: dict[str, Any] = {}
    for number, name in enumerate(names):
        prefix = ("leak__", "far__")[number % 2]
        save = {"saveAs": f"state.results.r{number}"} if number % 3 else {}
        actions[f"echo{number}"] = {
            **call(f"{prefix}Echo", name, confirm="never", **save),
        }
        if number % 4 == 0 and prefix == "leak__":
            actions[f"echo{number}"]["args"]["large"] = True
        actions[f"fail{number}"] = call(f"{prefix}Fail", name)
        actions[f"env{number}"] = {
            "kind": "tool.call",
            "tool": f"{prefix}Bash",
            "args": {"command": "env"},
            "secrets": [name],
            "saveAs": f"state.env.e{number}",
        }
    actions["crash"] = call("leak__Crash", names[1])
    actions["strict"] = call("leak__Strict", names[2])
    far = len(easel.instances) - 1  # the node is connected to the other instance, if there is one
    async with (
        GatewayClient.connected(easel.base_url, easel.token, new_session()) as client,
        NodePeer.connected(easel, "far", at=far, tools=node_tools) as peer,
    ):
        answering = asyncio.create_task(answer_as_leaky_node(peer, seen))
        created = new_session()
        spec = spec_of(actions, names, state={"results": {}, "env": {}})
        await client.call("canvas.create", canvasId=created, spec=spec)
        for action in actions:
            outcome = await scene.run(client, created, action, requestId=f"r-{action}")
            if action.startswith(("echo", "env")):
                assert "error" not in outcome, (action, outcome)
                assert "[secret S" in json.dumps(outcome)
        snapshot = await client.call("canvas.get", canvasId=created)
        scene.answers.append(json.dumps(snapshot, ensure_ascii=False))
        head = snapshot["descriptor"]["lastSeq"]
        await client.call("canvas.subscribe", canvasId=created, afterSeq=0)
        for event in await client.events(head):
            scene.answers.append(json.dumps(event.payload, ensure_ascii=False))
        records = await client.call("canvas.records", canvasId=created)
        scene.answers.append(json.dumps(records, ensure_ascii=False))
        answering.cancel()
    # The scan means something: every value reached a tool.
    used = [args.get("token") for args, _ in scene.leaky.calls] + [one["args"].get("token") for one in seen]
    used += [value for _, context in scene.leaky.calls for value in (context.env or {}).values()]
    used += [value for one in seen for value in one.get("env", {}).values()]
    assert {*scene.values.values()} <= {*used}
    scene.answers.append(easel.get("/api/audit?limit=200").text)
    scene.answers.append(easel.get(f"/canvas/main/{created}").text)
    scene.answers.append(easel.get("/api/secrets?limit=200").text)
    found = [
        f"{name} in {place}: {text[max(0, text.find(form) - 80) : text.find(form) + 80]!r}"
        for place, text in scene.places().items()
        for name, value in scene.values.items()
        for form in forms(value)
        if form in text
    ]
    assert found == []
    assert len(easel.sql("select * from secrets")) == 20


@rule("RS-66")
async def test_missing_and_undeclared_secrets_are_explained(scene: Scene) -> None:
    async with GatewayClient.connected(scene.easel.base_url, scene.easel.token, new_session()) as client:
        missing = {"act": call("leak__Echo", "NOT_SET", confirm="never")}
        name = new_session()
        created = await client.call("canvas.create", canvasId=name, spec=spec_of(missing, ["NOT_SET"]))
        assert any("easel secret set NOT_SET" in warning for warning in created["warnings"])
        outcome = await expect_refusal(client.call("canvas.action", canvasId=name, actionId="act"))
        assert outcome.code == 400
        assert "`easel secret set NOT_SET`" in str(outcome)
        for spec, problem in (
            (spec_of(missing, []), "toolPolicy.secrets does not list"),
            (spec_of({}, ["PATH"]), "must not be the name of a secret"),
            (spec_of({"act": STORED_BY_EASEL}, ["S00"]), "own tools store what they get"),
            (
                spec_of({"act": {"kind": "tool.call", "tool": "leak__Echo", "secrets": ["S00"]}}, ["S00"]),
                "takes no variables",
            ),
        ):
            refused = await expect_refusal(client.call("canvas.create", canvasId=new_session(), spec=spec))
            assert refused.code == 400
            assert problem in str(refused)


@rule("RS-66")
async def test_no_method_of_the_gateway_reads_a_secret(scene: Scene) -> None:
    async with GatewayClient.connected(scene.easel.base_url, scene.easel.token, new_session()) as client:
        for method in ("secret.get", "secret.list", "secrets.list", "secret.set"):
            assert (await expect_refusal(client.call(method))).code == 404


@rule("RS-66")
@pytest.mark.bwrap
async def test_command_of_the_host_gets_a_secret_and_its_output_is_masked(scene: Scene) -> None:
    actions = {
        "print": {
            "kind": "tool.call",
            "tool": "local__Bash",
            "confirm": "never",
            "secrets": ["S01", "S02"],
            "args": {"command": 'printf "%s\\n" "$S01"; sleep 0.4; printf %s "$S02" | base64'},
            "saveAs": "state.printed",
        }
    }
    async with GatewayClient.connected(scene.easel.base_url, scene.easel.token, new_session()) as client:
        canvas = await new_canvas(client, spec_of(actions, ["S01", "S02"], state={}))
        outcome = await scene.run(client, canvas, "print")
        assert outcome["result"]["exit_code"] == 0
        assert outcome["result"]["output"].startswith("[secret S01]\n[secret S02]")
        snapshot = await client.call("canvas.get", canvasId=canvas)
        await client.call("canvas.subscribe", canvasId=canvas, afterSeq=0)
        events = await client.events(snapshot["descriptor"]["lastSeq"])
        live = "".join(e.payload.get("text", "") for e in events if e.event == "canvas.action.output")
        assert "[secret S01]" in live
        shown = json.dumps([snapshot, [event.payload for event in events], outcome], ensure_ascii=False)
        leaks = [form for name in ("S01", "S02") for form in forms(scene.values[name]) if form in shown]
        assert leaks == []


@rule("RS-73")
@pytest.mark.bwrap
async def test_value_that_an_agent_wrote_makes_an_accepted_call_with_a_secret_ask(scene: Scene) -> None:
    action = {
        "kind": "tool.call",
        "tool": "local__Bash",
        "confirm": "never",
        "secrets": ["S01"],
        "args": {"command": "echo {{state.id}} {{input.note}}"},
        "missing": "empty",
        "saveAs": "last",
    }
    reset = {"kind": "state.patch", "patch": [{"op": "replace", "path": "/id", "value": "reset"}]}
    again = {**action, "args": {"command": "echo {{state.last.finishedAt}}"}}
    agent = agent_of(OWNER, RunId("run_1"))
    canvases = scene.easel.instances[0].services.canvases
    patch = [{"op": "replace", "path": "/id", "value": "b"}]
    async with GatewayClient.connected(scene.easel.base_url, scene.easel.token, new_session()) as client:
        spec = spec_of({"act": action, "again": again, "reset": reset}, ["S01"], state={"id": "a"})
        canvas = await new_canvas(client, spec)

        async def press(name: str = "act") -> dict[str, Any]:
            return await client.call("canvas.action", canvasId=canvas, actionId=name, input={"note": "n"})

        assert (await press())["status"] == "completed"
        # The second one has the result of a tool.
        assert (
            "state.last.finishedAt was written by the result of local__Bash"
            in ((await press("again"))["resolved"]["because"])
        )
        written = canvases.patch(
            agent, canvas, state_patch=patch, spec=None, title=None, expected_revision=None
        )
        await run_inside(scene.easel, written)
        asked = await press()
        assert asked["status"] == "needs_confirmation"
        assert "state.id was written by agent main" in asked["resolved"]["because"]
        done = await client.call("canvas.confirm", confirmationId=asked["confirmationId"], approve=True)
        assert done["result"]["output"] == "b n\n"
        # A value of the spec, of a person or an acceptance ends it.
        await press("reset")
        assert (await press())["status"] == "completed"
        await run_inside(
            scene.easel,
            canvases.patch(agent, canvas, state_patch=patch, spec=None, title=None, expected_revision=None),
        )
        assert (await press())["status"] == "needs_confirmation"
        revision = (await client.call("canvas.get", canvasId=canvas))["revision"]
        await client.call("canvas.accept", canvasId=canvas, revision=revision)
        assert (await press())["status"] == "completed"
        await run_inside(
            scene.easel,
            canvases.patch(
                agent,
                canvas,
                state_patch=[{**patch[0], "value": "c"}],
                spec=None,
                title=None,
                expected_revision=None,
            ),
        )
        await client.call("canvas.patch", canvasId=canvas, statePatch=[{**patch[0], "value": "d"}])
        assert (await press())["result"]["output"] == "d n\n"
