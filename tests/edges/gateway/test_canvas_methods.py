"""The canvas methods over `/ws`, on either store: create, find, change and delete."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.edges.methods import METHODS
from tests.edges.gateway.canvas_calls import add, refusal_of
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient

if TYPE_CHECKING:
    from pathlib import Path


# --- the table ----------------------------------------------------------------------------------------------


@rule("CV-32")
async def test_methods_of_the_specification_exist(client: GatewayClient) -> None:
    verbs = {
        f"canvas.{verb}" for verb in ("list", "get", "create", "upsert", "patch", "delete", "open", "close")
    }
    assert verbs <= set(client.hello["features"]["methods"])


# --- create and find ----------------------------------------------------------------------------------------


@rule("CV-09", "CV-13", "CV-14", "CV-15", "CV-17", "RS-09")
async def test_new_canvas_has_a_descriptor_and_the_state_of_its_spec(
    client: GatewayClient, easel: LiveEasel
) -> None:
    name = new_session()
    actions = {
        "reset": {"kind": "state.patch", "patch": [{"op": "replace", "path": "/service", "value": "api"}]}
    }
    spec = {"version": 1, "mode": "html", "state": {"service": "api"}, "actions": actions, "x-note": "mine"}
    created = await client.call("canvas.create", canvasId=name, title="Deploy", spec=spec)
    descriptor = created["descriptor"]
    assert set(descriptor) >= {
        "canvasId",
        "agentId",
        "title",
        "ownerSessionKey",
        "mode",
        "entryAsset",
        "createdAt",
        "updatedAt",
        "revision",
    }
    assert (descriptor["canvasId"], descriptor["agentId"], descriptor["title"], descriptor["mode"]) == (
        name,
        "main",
        "Deploy",
        "html",
    )
    assert (descriptor["ownerSessionKey"], descriptor["entryAsset"]) == (
        "agent:main:main",
        "assets/index.html",
    )
    assert descriptor["createdAt"] == descriptor["updatedAt"] > 1_600_000_000_000
    assert (
        descriptor["revision"],
        created["revision"],
        created["state"],
        created["assets"],
        created["views"],
    ) == (
        1,
        1,
        {"service": "api"},
        [],
        [],
    )
    assert created["spec"] == spec
    assert await client.call("canvas.get", canvasId=name) == created
    answer = easel.post("/api/rpc", {"method": "canvas.get", "params": {"canvasId": name}})
    assert answer.json() == created, "the same over HTTP"
    [row] = easel.sql(f"select revision, title from canvases where canvas_id = '{name}'")
    assert (row["revision"], row["title"]) == (1, "Deploy")


@rule("CV-15")
async def test_created_at_is_fixed_and_updated_at_increases(client: GatewayClient, canvas: str) -> None:
    descriptors = [(await client.call("canvas.get", canvasId=canvas))["descriptor"]]
    descriptors += [
        (await client.call("canvas.patch", canvasId=canvas, statePatch=[add("n", n)]))["descriptor"]
        for n in range(5)
    ]
    assert len({descriptor["createdAt"] for descriptor in descriptors}) == 1
    times = [descriptor["updatedAt"] for descriptor in descriptors]
    assert times == sorted(set(times)), "strictly increasing"


@rule("CV-33")
async def test_list_is_filtered_by_agent_and_paginated(client: GatewayClient) -> None:
    agents = [new_session(), new_session()]
    for agent in agents:
        for n in range(3):
            await client.call("canvas.create", canvasId=f"{agent}-{n}", agentId=agent)
    for agent in agents:
        page = await client.call("canvas.list", agentId=agent)
        assert [row["canvasId"] for row in page["canvases"]] == [f"{agent}-{n}" for n in range(3)]
        assert {row["agentId"] for row in page["canvases"]} == {agent}
    all_ids = [row["canvasId"] for row in (await client.call("canvas.list", limit=500))["canvases"]]
    assert {f"{agent}-{n}" for agent in agents for n in range(3)} <= set(all_ids)
    assert (await client.call("canvas.list", agentId="unknown")) == {"canvases": [], "count": 0}
    first = await client.call("canvas.list", agentId=agents[0], limit=2)
    rest = await client.call("canvas.list", agentId=agents[0], limit=2, after=first["next"])
    assert [row["canvasId"] for row in first["canvases"] + rest["canvases"]] == [
        f"{agents[0]}-{n}" for n in range(3)
    ]


@rule("CV-34")
async def test_create_refuses_an_existing_id_and_upsert_replaces_it(
    client: GatewayClient, canvas: str
) -> None:
    assert (await refusal_of(client.call("canvas.create", canvasId=canvas))).code == 409
    replaced = await client.call(
        "canvas.upsert", canvasId=canvas, title="Replaced", spec={"version": 1, "x-n": 2}
    )
    assert (replaced["descriptor"]["title"], replaced["spec"], replaced["revision"]) == (
        "Replaced",
        {"version": 1, "x-n": 2},
        2,
    )
    other = new_session()
    assert (await client.call("canvas.upsert", canvasId=other, spec={"state": {"a": 1}}))["state"] == {"a": 1}
    assert (await refusal_of(client.call("canvas.upsert", canvasId=canvas, agentId="other"))).code == 409


@rule("RS-40")
async def test_upsert_keeps_the_state_unless_it_has_one(client: GatewayClient, canvas: str) -> None:
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("typed", "by hand")])
    upserted = await client.call(
        "canvas.upsert", canvasId=canvas, spec={"version": 1, "state": {"n": "default"}}
    )
    assert upserted["state"] == {"n": 0, "typed": "by hand"}
    assert (await client.call("canvas.upsert", canvasId=canvas, state={"mine": True}))["state"] == {
        "mine": True
    }


async def test_invalid_spec_is_refused_with_the_location_by_every_method(
    client: GatewayClient, canvas: str
) -> None:
    specs: list[tuple[Any, str]] = [
        ({"actons": {}}, "actons"),
        ({"actions": {"go": {"kind": "rm"}}}, "actions.go.kind"),
    ]
    for spec, location in specs:
        for call in (
            client.call("canvas.create", canvasId=new_session(), spec=spec),
            client.call("canvas.upsert", canvasId=canvas, spec=spec),
            client.call("canvas.patch", canvasId=canvas, spec=spec),
        ):
            problem = await refusal_of(call)
            assert problem.code == 400
            assert problem.error["message"].startswith(location)
    assert (await client.call("canvas.get", canvasId=canvas))["revision"] == 1


# --- change -------------------------------------------------------------------------------------------------


@rule("CV-44", "CV-45")
@case("C11")
async def test_32_writers_with_expected_revision_lose_no_update(easel: LiveEasel, canvas: str) -> None:
    accepted: dict[int, str] = {}

    async def write(client: GatewayClient, writer: int) -> None:
        key = f"w{writer}"
        while True:
            current = await client.call("canvas.get", canvasId=canvas)
            at = current["revision"]
            count = {"op": "replace", "path": "/n", "value": current["state"]["n"] + 1}
            params = {"canvasId": canvas, "statePatch": [add(key, at + 1), count], "expectedRevision": at}
            conflict = await client.refusal("canvas.patch", params)
            if conflict is None:
                break
            assert conflict.code == 409
            assert conflict.details["currentRevision"] > at
        assert at + 1 not in accepted
        accepted[at + 1] = key

    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
        await asyncio.gather(*(write(client, writer) for writer in range(32)))
        snapshot = await client.call("canvas.get", canvasId=canvas)
    assert sorted(accepted) == list(range(2, 34)), "no revision is missing"
    assert snapshot["revision"] == 33
    assert snapshot["state"] == {"n": 32, **{key: revision for revision, key in accepted.items()}}


@rule("CV-45")
async def test_old_expected_revision_is_a_conflict_with_the_current_one(
    client: GatewayClient, canvas: str
) -> None:
    await client.call("canvas.asset.put", canvasId=canvas, path="assets/a.txt", text="a")
    before = await client.call("canvas.get", canvasId=canvas)
    name, old = {"canvasId": canvas}, {"expectedRevision": 1}
    requests = [
        ("canvas.upsert", {**name, "title": "x", **old}),
        ("canvas.patch", {**name, "statePatch": [add("x", 1)], **old}),
        ("canvas.patch", {**name, **old}),
        ("canvas.asset.put", {**name, "path": "assets/b.txt", "text": "b", **old}),
        ("canvas.asset.delete", {**name, "path": "assets/a.txt", **old}),
        ("canvas.delete", {**name, **old}),
        ("canvas.action", {**name, "actionId": "any", **old}),
        ("canvas.input", {**name, "path": "/n", "value": 1, **old}),
        ("canvas.restore", {**name, "version": 1, **old}),
        ("canvas.create", {"canvasId": new_session(), **old}),
        ("canvas.upsert", {"canvasId": new_session(), **old}),
    ]
    writing = {
        name
        for name, method in METHODS.items()
        if "expectedRevision" in {field.name for field in msgspec.structs.fields(method.params)}
    }
    assert {method for method, _ in requests} == writing
    for method, params in requests:
        problem = await refusal_of(client.ask(method, params))
        assert (problem.code, problem.error["name"]) == (409, "REVISION_CONFLICT"), method
        assert problem.details["currentRevision"] == (2 if params["canvasId"] == canvas else 0)
    assert await client.call("canvas.get", canvasId=canvas) == before, "nothing was stored"
    for method, params in requests[:1] + requests[5:6]:
        current = (await client.call("canvas.get", canvasId=canvas))["revision"]
        await client.ask(method, {**params, "expectedRevision": current})


async def test_empty_patch_changes_nothing(client: GatewayClient, canvas: str) -> None:
    """Regression: in GSV an empty patch raised the revision."""
    before = await client.call("canvas.get", canvasId=canvas)
    for params in ({}, {"statePatch": []}, {"title": "Cockpit"}, {"statePatch": [], "title": "Cockpit"}):
        assert await client.call("canvas.patch", canvasId=canvas, **params) == before


@rule("CV-34")
@pytest.mark.parametrize("verb", ["canvas.upsert", "canvas.patch"])
async def test_equal_spec_is_no_change_and_a_different_type_is(
    client: GatewayClient, canvas: str, verb: str
) -> None:
    spec = {"version": 1, "x-n": {"a": 1, "b": [True]}, "state": {"logo": "QUJD" * 1_000}}
    stored = await client.call(verb, canvasId=canvas, spec=spec)
    assert (await client.call(verb, canvasId=canvas, spec=dict(reversed(spec.items()))))[
        "revision"
    ] == stored["revision"]
    other = await client.call(verb, canvasId=canvas, spec={**spec, "x-n": {"a": True, "b": [1]}})
    assert (other["revision"], other["spec"]["x-n"]) == (stored["revision"] + 1, {"a": True, "b": [1]})
    titled = await client.call(verb, canvasId=canvas, spec=other["spec"], title="Other")
    assert (titled["revision"], titled["descriptor"]["title"]) == (other["revision"] + 1, "Other"), (
        "a new title is a change"
    )


async def test_state_that_differs_only_by_a_type_is_stored(client: GatewayClient, canvas: str) -> None:
    for value in (1, True, [1], [True]):
        assert (await client.call("canvas.upsert", canvasId=canvas, state={"n": value}))["state"][
            "n"
        ] == value
    again = await client.call("canvas.get", canvasId=canvas)
    assert again["state"]["n"][0] is True
    assert again["revision"] == 5


@rule("CV-34")
async def test_patch_is_atomic_and_names_the_invalid_operation(client: GatewayClient, canvas: str) -> None:
    before = await client.call("canvas.get", canvasId=canvas)
    for patch in (
        [add("a", 1), {"op": "remove", "path": "/nothing"}],
        [add("a", 1), {"op": "test", "path": "/n", "value": 0}],
        [add("__proto__/x", 1)],
        [add("a", 1), {"op": "replace", "path": "/n/deeper", "value": 1}],
    ):
        problem = await refusal_of(client.call("canvas.patch", canvasId=canvas, statePatch=patch))
        assert problem.code == 400
        assert problem.error["message"].startswith("statePatch[")
    assert await client.call("canvas.get", canvasId=canvas) == before
    assert (
        await refusal_of(client.call("canvas.patch", canvasId=new_session(), statePatch=[add("a", 1)]))
    ).code == 404
    both = await client.call(
        "canvas.patch", canvasId=canvas, statePatch=[add("a", 1)], title="New", spec={"x-n": 1}
    )
    assert (both["state"], both["descriptor"]["title"], both["spec"], both["revision"]) == (
        {"n": 0, "a": 1},
        "New",
        {"x-n": 1},
        2,
    )


UNSAFE = {"a": [{"__proto__": {"polluted": True}}]}
UNSAFE_ACTION = {"kind": "state.patch", "patch": [add("b", UNSAFE)]}
UNSAFE_NAMES = [
    # method, params, location in the message
    ("canvas.create", {"state": UNSAFE},                               "state.a[0]"),
    ("canvas.create", {"spec": {"state": UNSAFE}},                     "state.a[0]"),
    ("canvas.create", {"spec": {"actions": {"go": UNSAFE_ACTION}}},    "actions.go.patch[0].value.a[0]"),
    ("canvas.upsert", {"state": {"constructor": 1}},                   "state"),
    ("canvas.upsert", {"spec": {"state": UNSAFE}},                     "state.a[0]"),
    ("canvas.patch",  {"spec": {"state": UNSAFE}},                     "state.a[0]"),
    ("canvas.patch",  {"statePatch": [add("x", 1), add("b", UNSAFE)]}, "statePatch[1].value.a[0]"),
    ("canvas.input",  {"path": "/n", "value": UNSAFE},                 "value.a[0]"),
]  # fmt: skip


@rule("CV-25")
@case("X7")
async def test_unsafe_member_name_is_refused_by_every_method(client: GatewayClient, canvas: str) -> None:
    before = await client.call("canvas.get", canvasId=canvas)
    for method, params, location in UNSAFE_NAMES:
        name = new_session() if method == "canvas.create" else canvas
        problem = await refusal_of(client.ask(method, {"canvasId": name, **params}))
        assert (problem.code, problem.error["message"].split(": ")[0]) == (400, location)
    assert await client.call("canvas.get", canvasId=canvas) == before


@rule("CC-23")
async def test_base64_in_a_patch_is_offloaded(client: GatewayClient, easel: LiveEasel, canvas: str) -> None:
    pixels = base64.b64encode(bytes(n * 31 % 251 for n in range(6_000))).decode()
    patched = await client.call("canvas.patch", canvasId=canvas, statePatch=[add("shot", pixels)])
    assert patched["state"]["shot"]["redacted"] is True
    assert easel.get(patched["state"]["shot"]["uri"]).text == pixels
    [row] = easel.sql(f"select count(*) as count from artifact_refs where canvas_id = '{canvas}'")
    assert row["count"] == 1


async def test_state_over_the_limit_is_refused(client: GatewayClient, canvas: str) -> None:
    text = "plain words " * 40_000
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", text)])
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("b", text)])
    assert (
        await refusal_of(client.call("canvas.patch", canvasId=canvas, statePatch=[add("c", text)]))
    ).code == 413
    snapshot = await client.call("canvas.get", canvasId=canvas)
    assert (set(snapshot["state"]), snapshot["revision"]) == ({"n", "a", "b"}, 3)


# ---
# --- ownership ----------------------------------------------------------------------------------------------


@rule("CV-08")
async def test_canvas_of_another_user_is_not_found_by_any_method(
    client: GatewayClient, easel: LiveEasel
) -> None:
    name = new_session()
    easel.sql(
        "insert into accounts (account_id, kind, name) values ('ann', 'person', 'ann') on conflict do nothing"
    )
    easel.sql(
        "insert into canvases (account_id, canvas_id, agent_id, title, spec, state) "
        f"values ('ann', '{name}', 'main', 'Foreign', '{{}}', '{{}}')"
    )
    foreign = {"canvasId": name}
    for method, params in (
        ("canvas.get", foreign),
        ("canvas.patch", {**foreign, "statePatch": [add("a", 1)]}),
        ("canvas.open", foreign),
        ("canvas.close", foreign),
        ("canvas.subscribe", foreign),
        ("canvas.asset.put", {**foreign, "path": "assets/a", "text": "a"}),
        ("canvas.asset.get", {**foreign, "path": "assets/a"}),
        ("canvas.asset.list", foreign),
        ("canvas.asset.delete", {**foreign, "path": "assets/a"}),
    ):
        assert (await refusal_of(client.ask(method, params))).code == 404, method
    assert (await client.ask("canvas.delete", foreign))["deleted"] is False
    assert name not in str(await client.call("canvas.list", limit=500))
    await client.call("canvas.create", canvasId=name)  # ids are unique per user
    [row] = easel.sql(f"select title from canvases where account_id = 'ann' and canvas_id = '{name}'")
    assert row["title"] == "Foreign"


# ---
# --- durability ---------------------------------------------------------------------------------------------


@rule("CV-02", "CV-07")
async def test_canvas_is_unchanged_after_a_restart(
    tmp_path: Path,
) -> None:
    name, token = new_session(), f"owner-{new_session()}"
    spec = {
        "version": 1,
        "mode": "html",
        "actions": {"go": {"kind": "state.patch", "patch": []}},
        "x-note": "ä",
    }
    with LiveEasel(tmp_path, with_worker=False, token=token) as live:
        async with GatewayClient.connected(live.base_url, token) as client:
            await client.call(
                "canvas.create",
                canvasId=name,
                spec=spec,
                state={"a": [1, {"b": None}]},
                assets={"assets/index.html": "<p>"},
            )
            before = await client.call("canvas.get", canvasId=name)
    with LiveEasel(tmp_path, with_worker=False, token=token) as live:
        async with GatewayClient.connected(live.base_url, token) as client:
            assert await client.call("canvas.get", canvasId=name) == before
            assert (await client.call("canvas.asset.get", canvasId=name, path="assets/index.html"))[
                "text"
            ] == "<p>"


@rule("CV-07", "RS-09")
async def test_every_instance_serves_every_canvas(two_edges: LiveEasel) -> None:
    here, there = (instance.base_url for instance in two_edges.instances)
    name = new_session()
    async with (
        GatewayClient.connected(here, two_edges.token) as first,
        GatewayClient.connected(there, two_edges.token) as second,
    ):
        await first.call("canvas.create", canvasId=name, assets={"assets/a.txt": "a"})
        assert (await second.call("canvas.patch", canvasId=name, statePatch=[add("x", 1)]))["revision"] == 2
        assert (await first.call("canvas.get", canvasId=name))["state"] == {"x": 1}
        assert (await second.call("canvas.asset.get", canvasId=name, path="assets/a.txt"))["text"] == "a"
        patches = [
            (first, second)[n % 2].call("canvas.patch", canvasId=name, statePatch=[add(f"k{n}", n)])
            for n in range(20)
        ]
        await asyncio.gather(*patches)
        assert (await first.call("canvas.get", canvasId=name))["revision"] == 22


# --- the connection -----------------------------------------------------------------------------------------


async def test_ping_is_answered_with_nothing(client: GatewayClient) -> None:
    """A page asks whether a silent connection still carries an answer."""
    assert await client.ask("ping") == {}
