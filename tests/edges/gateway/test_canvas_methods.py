"""The canvas methods over `/ws`, on either store: create, find, change and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.edges.methods import METHODS
from tests.edges.gateway.canvas_calls import add, refusal_of
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.support.gateway import GatewayClient


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
    members = {"descriptor", "spec", "state", "assets", "views", "revision"}
    assert set(created) == {*members, "accepted", "specRevision", "writtenBy"}
    assert created["writtenBy"] == {"kind": "person", "name": "owner"}
    descriptor = created["descriptor"]
    expected = {
        "canvasId": name,
        "agentId": "main",
        "title": "Deploy",
        "ownerSessionKey": "agent:main:main",
        "mode": "html",
        "entryAsset": "assets/index.html",
        "revision": 1,
    }
    assert expected.items() <= descriptor.items()
    assert descriptor["createdAt"] == descriptor["updatedAt"] > 1_600_000_000_000
    assert (created["revision"], created["state"]) == (1, {"service": "api"})
    assert (created["assets"], created["views"]) == ([], [])
    assert created["spec"] == spec
    assert await client.call("canvas.get", canvasId=name) == created
    answer = easel.post("/api/rpc", {"method": "canvas.get", "params": {"canvasId": name}})
    assert answer.json() == created, "the same over HTTP"
    [row] = easel.sql(f"select revision, title from canvases where canvas_id = '{name}'")
    assert (row["revision"], row["title"]) == (1, "Deploy")


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


# --- the connection -----------------------------------------------------------------------------------------


async def test_ping_is_answered_with_nothing(client: GatewayClient) -> None:
    """A page asks whether a silent connection still carries an answer."""
    assert await client.ask("ping") == {}
