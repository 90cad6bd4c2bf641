"""The canvas methods over `/ws`, on either store: made, found, changed and removed, with nothing lost and nothing leaked."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.edges.methods import METHODS
from easel.settings import Settings
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.gateway import GatewayClient, Refused

if TYPE_CHECKING:
    from pathlib import Path


def add(key: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": f"/{key}", "value": value}


async def refused(asked: Any) -> Refused:
    with pytest.raises(Refused) as problem:
        await asked
    return problem.value


# --- the table ----------------------------------------------------------------------------------------------------------


@rule("CV-45")
def test_every_verb_that_writes_takes_the_revision_that_it_expects() -> None:
    for name, method in METHODS.items():
        fields = {field.name for field in msgspec.structs.fields(method.params)}
        assert ("expectedRevision" in fields) == method.writes, name


@rule("CV-32")
async def test_the_verbs_of_the_specification_are_there(client: GatewayClient) -> None:
    verbs = {
        f"canvas.{verb}" for verb in ("list", "get", "create", "upsert", "patch", "delete", "open", "close")
    }
    assert verbs <= set(client.hello["features"]["methods"])


# --- making and finding -------------------------------------------------------------------------------------------------


@rule("CV-09", "CV-13", "CV-14", "CV-15", "CV-17", "RS-09")
async def test_a_new_canvas_has_all_of_its_descriptor_and_its_spec_state(
    client: GatewayClient, easel: LiveEasel
) -> None:
    name = new_session()
    actions = {
        "reset": {"kind": "state.patch", "patch": [{"op": "replace", "path": "/service", "value": "api"}]}
    }
    spec = {"version": 1, "mode": "html", "state": {"service": "api"}, "actions": actions, "x-note": "mine"}
    made = await client.call("canvas.create", canvasId=name, title="Deploy", spec=spec)
    told = made["descriptor"]
    assert set(told) >= {
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
    assert (told["canvasId"], told["agentId"], told["title"], told["mode"]) == (
        name,
        "main",
        "Deploy",
        "html",
    )
    assert (told["ownerSessionKey"], told["entryAsset"]) == ("agent:main:main", "assets/index.html")
    assert told["createdAt"] == told["updatedAt"] > 1_600_000_000_000
    assert (told["revision"], made["revision"], made["state"], made["assets"], made["views"]) == (
        1,
        1,
        {"service": "api"},
        [],
        [],
    )
    assert made["spec"] == spec
    assert await client.call("canvas.get", canvasId=name) == made
    answer = easel.post("/api/rpc", {"method": "canvas.get", "params": {"canvasId": name}})
    assert answer.json() == made, "over HTTP it is the same"
    [row] = easel.sql(f"select revision, title from canvases where canvas_id = '{name}'")
    assert (row["revision"], row["title"]) == (1, "Deploy")


@rule("CV-15")
async def test_created_at_stays_and_updated_at_moves_with_every_mutation(
    client: GatewayClient, canvas: str
) -> None:
    seen = [(await client.call("canvas.get", canvasId=canvas))["descriptor"]]
    seen += [
        (await client.call("canvas.patch", canvasId=canvas, statePatch=[add("n", n)]))["descriptor"]
        for n in range(5)
    ]
    assert len({one["createdAt"] for one in seen}) == 1
    times = [one["updatedAt"] for one in seen]
    assert times == sorted(set(times)), "forward, each time"


@rule("CV-33")
async def test_a_listing_has_the_canvases_of_one_agent_and_no_others(client: GatewayClient) -> None:
    agents = [new_session(), new_session()]
    for agent in agents:
        for n in range(3):
            await client.call("canvas.create", canvasId=f"{agent}-{n}", agentId=agent)
    for agent in agents:
        page = await client.call("canvas.list", agentId=agent)
        assert [one["canvasId"] for one in page["canvases"]] == [f"{agent}-{n}" for n in range(3)]
        assert {one["agentId"] for one in page["canvases"]} == {agent}
    everyone = [one["canvasId"] for one in (await client.call("canvas.list", limit=500))["canvases"]]
    assert {f"{agent}-{n}" for agent in agents for n in range(3)} <= set(everyone)
    assert (await client.call("canvas.list", agentId="nobody")) == {"canvases": []}
    first = await client.call("canvas.list", agentId=agents[0], limit=2)
    rest = await client.call("canvas.list", agentId=agents[0], limit=2, after=first["next"])
    assert [one["canvasId"] for one in first["canvases"] + rest["canvases"]] == [
        f"{agents[0]}-{n}" for n in range(3)
    ]


@rule("CV-34")
async def test_create_refuses_an_id_in_use_and_upsert_takes_it(client: GatewayClient, canvas: str) -> None:
    assert (await refused(client.call("canvas.create", canvasId=canvas))).code == 409
    replaced = await client.call(
        "canvas.upsert", canvasId=canvas, title="Anew", spec={"version": 1, "x-n": 2}
    )
    assert (replaced["descriptor"]["title"], replaced["spec"], replaced["revision"]) == (
        "Anew",
        {"version": 1, "x-n": 2},
        2,
    )
    fresh = new_session()
    assert (await client.call("canvas.upsert", canvasId=fresh, spec={"state": {"a": 1}}))["state"] == {"a": 1}
    assert (await refused(client.call("canvas.upsert", canvasId=canvas, agentId="other"))).code == 400


@rule("RS-40")
async def test_an_upsert_keeps_the_state_unless_it_brings_its_own(client: GatewayClient, canvas: str) -> None:
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("typed", "by hand")])
    kept = await client.call("canvas.upsert", canvasId=canvas, spec={"version": 1, "state": {"n": "default"}})
    assert kept["state"] == {"n": 0, "typed": "by hand"}
    assert (await client.call("canvas.upsert", canvasId=canvas, state={"mine": True}))["state"] == {
        "mine": True
    }


SPECS: list[tuple[Any, str]] = [
    ({"version": 2}, "version"),
    ({"mode": "flash"}, "mode"),
    ({"actons": {}}, "actons"),
    ({"actions": {"go": {"kind": "rm"}}}, "actions.go.kind"),
    ({"state": []}, "state"),
    ({"bindings": {"b.go": "nope"}}, "bindings.b.go"),
]


@pytest.mark.parametrize("spec, place", SPECS, ids=[place for _, place in SPECS])
async def test_a_spec_that_is_wrong_is_refused_with_the_place_by_every_way_in(
    client: GatewayClient, canvas: str, spec: Any, place: str
) -> None:
    for asked in (
        client.call("canvas.create", canvasId=new_session(), spec=spec),
        client.call("canvas.upsert", canvasId=canvas, spec=spec),
        client.call("canvas.patch", canvasId=canvas, spec=spec),
    ):
        problem = await refused(asked)
        assert problem.code == 400
        assert problem.error["message"].startswith(place)
    assert (await client.call("canvas.get", canvasId=canvas))["revision"] == 1


# --- changing -----------------------------------------------------------------------------------------------------------


@rule("CV-44")
async def test_fifty_patches_at_once_leave_fifty_keys_and_fifty_revisions(
    easel: LiveEasel, canvas: str
) -> None:
    """Bug 1 of GSV: 5 or 6 of the 50 keys survived, and the revision said 4 or 5."""
    async with (
        GatewayClient.connected(easel.base_url, easel.token, new_session()) as one,
        GatewayClient.connected(easel.base_url, easel.token, new_session()) as other,
    ):
        patches = [
            (one, other)[n % 2].call("canvas.patch", canvasId=canvas, statePatch=[add(f"k{n}", n)])
            for n in range(50)
        ]
        answers = await asyncio.gather(*patches)
        assert sorted(answer["revision"] for answer in answers) == list(range(2, 52))
        snapshot = await one.call("canvas.get", canvasId=canvas)
    assert snapshot["state"] == {"n": 0, **{f"k{n}": n for n in range(50)}}
    assert (snapshot["revision"], snapshot["descriptor"]["lastSeq"]) == (51, 51)


@rule("CV-44", "CV-45")
@case("C11")
async def test_32_writers_with_compare_and_swap_leave_the_fold_of_what_was_accepted(
    easel: LiveEasel, canvas: str
) -> None:
    accepted: dict[int, str] = {}

    async def write(client: GatewayClient, principal: int) -> None:
        for turn in range(2):
            while True:
                now = await client.call("canvas.get", canvasId=canvas)
                at, key = now["revision"], f"w{principal}t{turn}"
                patch = [add(key, at + 1), {"op": "replace", "path": "/n", "value": now["state"]["n"] + 1}]
                params = {"canvasId": canvas, "statePatch": patch, "expectedRevision": at}
                conflict = await client.refusal("canvas.patch", params)
                if conflict is not None:
                    assert conflict.code == 409
                    assert conflict.details["currentRevision"] > at
                    continue
                assert at + 1 not in accepted
                accepted[at + 1] = key
                break

    async with GatewayClient.connected(easel.base_url, easel.token, new_session()) as client:
        await asyncio.gather(*(write(client, principal) for principal in range(32)))
        snapshot = await client.call("canvas.get", canvasId=canvas)
    assert sorted(accepted) == list(range(2, 66)), "without a gap"
    assert snapshot["revision"] == 65
    assert snapshot["state"] == {"n": 64, **{key: revision for revision, key in accepted.items()}}


@rule("CV-45")
async def test_every_mutation_with_an_old_revision_is_a_conflict_that_says_the_current_one(
    client: GatewayClient, canvas: str
) -> None:
    await client.call("canvas.asset.put", canvasId=canvas, path="assets/a.txt", text="a")
    before = await client.call("canvas.get", canvasId=canvas)
    name, old = {"canvasId": canvas}, {"expectedRevision": 1}
    asked = [
        ("canvas.upsert", {**name, "title": "x", **old}),
        ("canvas.patch", {**name, "statePatch": [add("x", 1)], **old}),
        ("canvas.patch", {**name, **old}),
        ("canvas.asset.put", {**name, "path": "assets/b.txt", "text": "b", **old}),
        ("canvas.asset.delete", {**name, "path": "assets/a.txt", **old}),
        ("canvas.delete", {**name, **old}),
        ("canvas.action", {**name, "actionId": "any", **old}),
        ("canvas.input", {**name, "path": "/n", "value": 1, **old}),
        ("canvas.create", {"canvasId": new_session(), **old}),
        ("canvas.upsert", {"canvasId": new_session(), **old}),
    ]
    assert {method for method, _ in asked} == {method for method, row in METHODS.items() if row.writes}
    for method, params in asked:
        problem = await refused(client.ask(method, params))
        assert (problem.code, problem.error["name"]) == (409, "REVISION_CONFLICT"), method
        assert problem.details["currentRevision"] == (2 if params["canvasId"] == canvas else 0)
    assert await client.call("canvas.get", canvasId=canvas) == before, "nothing was stored"
    for method, params in asked[:1] + asked[5:6]:
        current = (await client.call("canvas.get", canvasId=canvas))["revision"]
        await client.ask(method, {**params, "expectedRevision": current})


async def test_an_empty_patch_changes_nothing_and_tells_nobody(client: GatewayClient, canvas: str) -> None:
    """Bug 9 of GSV: an empty patch still bumped the revision."""
    before = await client.call("canvas.get", canvasId=canvas)
    for nothing in ({}, {"statePatch": []}, {"title": "Cockpit"}, {"statePatch": [], "title": "Cockpit"}):
        assert await client.call("canvas.patch", canvasId=canvas, **nothing) == before


@rule("CV-34")
@pytest.mark.parametrize("verb", ["canvas.upsert", "canvas.patch"])
async def test_the_very_same_spec_again_is_no_change_and_one_that_differs_by_a_type_is(
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
        "what else is new counts"
    )


async def test_a_state_that_differs_by_a_type_alone_is_stored(client: GatewayClient, canvas: str) -> None:
    for value in (1, True, [1], [True]):
        assert (await client.call("canvas.upsert", canvasId=canvas, state={"n": value}))["state"][
            "n"
        ] == value
    again = await client.call("canvas.get", canvasId=canvas)
    assert again["state"]["n"][0] is True
    assert again["revision"] == 5


@rule("CV-34")
async def test_a_patch_is_all_or_nothing_and_names_what_does_not_fit(
    client: GatewayClient, canvas: str
) -> None:
    before = await client.call("canvas.get", canvasId=canvas)
    for patch in (
        [add("a", 1), {"op": "remove", "path": "/nothing"}],
        [add("a", 1), {"op": "test", "path": "/n", "value": 0}],
        [add("__proto__/x", 1)],
        [add("a", 1), {"op": "replace", "path": "/n/deeper", "value": 1}],
    ):
        problem = await refused(client.call("canvas.patch", canvasId=canvas, statePatch=patch))
        assert problem.code == 400
        assert problem.error["message"].startswith("statePatch[")
    assert await client.call("canvas.get", canvasId=canvas) == before
    assert (
        await refused(client.call("canvas.patch", canvasId=new_session(), statePatch=[add("a", 1)]))
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


HOLDS = {"a": [{"__proto__": {"polluted": True}}]}
PATCH_IT = {"kind": "state.patch", "patch": [add("b", HOLDS)]}
ENTERS = [
    # method           with                                                    refused at
    ("canvas.create",  {"state": HOLDS},                                       "state.a[0]"),
    ("canvas.create",  {"spec": {"state": HOLDS}},                             "state.a[0]"),
    ("canvas.create",  {"spec": {"actions": {"go": PATCH_IT}}},                "actions.go.patch[0].value.a[0]"),
    ("canvas.upsert",  {"state": {"constructor": 1}},                          "state"),
    ("canvas.upsert",  {"spec": {"state": HOLDS}},                             "state.a[0]"),
    ("canvas.patch",   {"spec": {"state": HOLDS}},                             "state.a[0]"),
    ("canvas.patch",   {"statePatch": [add("x", 1), add("b", HOLDS)]},         "statePatch[1].value.a[0]"),
    ("canvas.input",   {"path": "/n", "value": HOLDS},                         "value.a[0]"),
]  # fmt: skip


@rule("CV-25")
@case("X7")
@pytest.mark.parametrize("method, params, at", ENTERS, ids=range(len(ENTERS)))
async def test_a_name_that_no_path_may_have_does_not_get_into_a_state_whole_either(
    client: GatewayClient, canvas: str, method: str, params: dict[str, Any], at: str
) -> None:
    before = await client.call("canvas.get", canvasId=canvas)
    name = new_session() if method == "canvas.create" else canvas
    given = {"spec": {}, **params} if method == "canvas.create" else params
    problem = await refused(client.ask(method, {"canvasId": name, **given}))
    assert (problem.code, problem.error["message"].split(": ")[0]) == (400, at)
    assert await client.call("canvas.get", canvasId=canvas) == before


@rule("CC-23")
async def test_base64_in_a_patch_is_moved_to_an_artifact_like_any_other(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    pixels = base64.b64encode(bytes(n * 31 % 251 for n in range(6_000))).decode()
    patched = await client.call("canvas.patch", canvasId=canvas, statePatch=[add("shot", pixels)])
    assert patched["state"]["shot"]["redacted"] is True
    assert easel.get(patched["state"]["shot"]["uri"]).text == pixels
    [row] = easel.sql(f"select count(*) as kept from artifact_refs where canvas_id = '{canvas}'")
    assert row["kept"] == 1


async def test_a_state_grows_up_to_its_limit_and_not_beyond(client: GatewayClient, canvas: str) -> None:
    text = "plain words " * 40_000
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("a", text)])
    await client.call("canvas.patch", canvasId=canvas, statePatch=[add("b", text)])
    assert (
        await refused(client.call("canvas.patch", canvasId=canvas, statePatch=[add("c", text)]))
    ).code == 413
    snapshot = await client.call("canvas.get", canvasId=canvas)
    assert (set(snapshot["state"]), snapshot["revision"]) == ({"n", "a", "b"}, 3)


# --- whose ----------------------------------------------------------------------------------------------------------------


@rule("CV-08")
async def test_what_is_not_there_for_the_caller_is_not_found_by_any_method(
    client: GatewayClient, easel: LiveEasel
) -> None:
    name = new_session()
    easel.sql("insert into users (user_id, name) values ('ann', 'ann') on conflict do nothing")
    easel.sql(
        f"insert into canvases (user_id, canvas_id, agent_id, title, spec, state) values ('ann', '{name}', 'main', 'Hers', '{{}}', '{{}}')"
    )
    of_hers = {"canvasId": name}
    for method, params in (
        ("canvas.get", of_hers),
        ("canvas.patch", {**of_hers, "statePatch": [add("a", 1)]}),
        ("canvas.delete", of_hers),
        ("canvas.open", of_hers),
        ("canvas.close", of_hers),
        ("canvas.subscribe", of_hers),
        ("canvas.asset.put", {**of_hers, "path": "assets/a", "text": "a"}),
        ("canvas.asset.get", {**of_hers, "path": "assets/a"}),
        ("canvas.asset.list", of_hers),
        ("canvas.asset.delete", {**of_hers, "path": "assets/a"}),
    ):
        assert (await refused(client.ask(method, params))).code == 404, method
    assert name not in str(await client.call("canvas.list", limit=500))
    await client.call("canvas.create", canvasId=name)  # the same name is free to each user
    [row] = easel.sql(f"select title from canvases where user_id = 'ann' and canvas_id = '{name}'")
    assert row["title"] == "Hers"


# --- assets ---------------------------------------------------------------------------------------------------------------


@rule("CV-09", "CV-34", "RS-10")
async def test_assets_come_back_as_they_were_put_and_go_with_their_canvas(
    client: GatewayClient, easel: LiveEasel
) -> None:
    name, page, pixels = new_session(), "<p>Grüße</p>\r\n", bytes(range(256)) * 20
    made = await client.call("canvas.create", canvasId=name, assets={"assets/index.html": page})
    assert (made["assets"], made["revision"]) == (["assets/index.html"], 1)
    put = await client.call(
        "canvas.asset.put", canvasId=name, path="assets/img/a.png", base64=base64.b64encode(pixels).decode()
    )
    assert (put["revision"], put["size"], put["mediaType"]) == (2, len(pixels), "image/png")
    got = await client.call("canvas.asset.get", canvasId=name, path="assets/index.html")
    assert (got["text"], got["mediaType"]) == (page, "text/html")
    got = await client.call("canvas.asset.get", canvasId=name, path="assets/img/a.png")
    assert base64.b64decode(got["base64"]) == pixels
    await client.call("canvas.asset.put", canvasId=name, path="assets/index.html", text="anew")
    assert (await client.call("canvas.asset.get", canvasId=name, path="assets/index.html"))["text"] == "anew"
    listed = await client.call("canvas.asset.list", canvasId=name)
    assert [(one["path"], one["size"]) for one in listed["assets"]] == [
        ("assets/img/a.png", len(pixels)),
        ("assets/index.html", 4),
    ]
    kept = files_of(easel, name)
    assert sorted(path.read_bytes() for path in kept) == sorted([b"anew", pixels]), (
        "in the canvas's folder, and the old page is gone"
    )
    await client.call("canvas.asset.delete", canvasId=name, path="assets/img/a.png")
    assert (
        await refused(client.call("canvas.asset.get", canvasId=name, path="assets/img/a.png"))
    ).code == 404
    assert (await client.call("canvas.get", canvasId=name))["revision"] == 4
    await client.call("canvas.delete", canvasId=name)
    assert (
        await refused(client.call("canvas.asset.get", canvasId=name, path="assets/index.html"))
    ).code == 404
    assert files_of(easel, name) == []


def files_of(easel: LiveEasel, canvas: str) -> list[Path]:
    folder = easel.folder / "blobs" / "users" / "owner" / "agents" / "main" / "canvases" / canvas / "assets"
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


async def test_an_upsert_with_assets_brings_the_whole_set_and_one_without_keeps_them(
    client: GatewayClient, easel: LiveEasel
) -> None:
    name = new_session()
    await client.call("canvas.upsert", canvasId=name, assets={"assets/index.html": "a", "assets/old.js": "b"})
    assert (await client.call("canvas.upsert", canvasId=name, title="x"))["assets"] == [
        "assets/index.html",
        "assets/old.js",
    ]
    replaced = await client.call("canvas.upsert", canvasId=name, assets={"assets/index.html": "c"})
    assert replaced["assets"] == ["assets/index.html"]
    assert [path.read_bytes() for path in files_of(easel, name)] == [b"c"]
    problem = await refused(
        client.call("canvas.upsert", canvasId=name, assets={"assets/index.html": "d"}, expectedRevision=1)
    )
    assert problem.code == 409
    assert [path.read_bytes() for path in files_of(easel, name)] == [b"c"], (
        "what was refused left nothing behind"
    )


@rule("CV-47")
@case("U4")
async def test_a_path_out_of_the_assets_folder_is_refused_on_reading_and_on_writing(
    client: GatewayClient, canvas: str
) -> None:
    for path in (
        "../x",
        "assets/../x",
        "/etc/passwd",
        "assets/%2e%2e/x",
        "assets\\..\\x",
        "assets/a\x00b",
        "assets/‥/x",
        "ASSETS/x",
        "assets/",
    ):
        for method, more in (("put", {"text": "x"}), ("get", {}), ("delete", {})):
            problem = await refused(
                client.ask(f"canvas.asset.{method}", {"canvasId": canvas, "path": path, **more})
            )
            assert problem.code == 400, (method, path)
        for method in ("canvas.create", "canvas.upsert"):
            name = new_session() if method == "canvas.create" else canvas
            assert (await refused(client.call(method, canvasId=name, assets={path: "x"}))).code == 400


@rule("CV-47")
@case("U4")
async def test_a_link_in_the_assets_folder_is_not_followed(
    client: GatewayClient, easel: LiveEasel, canvas: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"four")
    await client.call("canvas.asset.put", canvasId=canvas, path="assets/a.txt", text="four")
    [kept] = files_of(easel, canvas)
    kept.unlink()
    kept.symlink_to(secret)  # somebody with a hand on the disk
    problem = await refused(client.call("canvas.asset.get", canvasId=canvas, path="assets/a.txt"))
    assert (problem.code, problem.error["name"]) == (500, "CORRUPT_DATA")
    await client.call("canvas.asset.put", canvasId=canvas, path="assets/a.txt", text="anew")
    assert secret.read_bytes() == b"four"
    assert (await client.call("canvas.asset.get", canvasId=canvas, path="assets/a.txt"))["text"] == "anew"


@rule("CV-09", "CC-26")
@pytest.mark.parametrize("verb", ["canvas.create", "canvas.upsert"])
async def test_a_canvas_is_made_with_its_pictures_in_one_call_and_they_enter_no_table(
    easel: LiveEasel, verb: str
) -> None:
    """The largest asset that may be goes through with the settings that we deliver."""
    name, pixels = new_session(), bytes(n * 31 % 251 for n in range(6_000))
    largest = (name.encode() + bytes(range(256))) * 20_000
    largest = largest[: Settings().max_asset_bytes]
    assert len(largest) == Settings().max_asset_bytes
    encoded = {
        path: base64.b64encode(content).decode()
        for path, content in (("assets/a.png", pixels), ("assets/film.webm", largest))
    }
    assets: dict[str, Any] = {
        "assets/index.html": "<img src=a.png>",
        **{path: {"base64": text} for path, text in encoded.items()},
    }
    answer = easel.post("/api/rpc", {"method": verb, "params": {"canvasId": name, "assets": assets}})
    assert (answer.status_code, answer.json()["assets"]) == (
        200,
        ["assets/a.png", "assets/film.webm", "assets/index.html"],
    )
    assert sorted(path.read_bytes() for path in files_of(easel, name)) == sorted(
        [b"<img src=a.png>", pixels, largest]
    )
    for table in ("canvases", "canvas_events", "canvas_assets", "audit"):
        stored = str(easel.sql(f"select * from {table}"))
        assert not any(text[:400] in stored for text in encoded.values()), table


BAD_ENCODED: list[tuple[Any, str]] = [
    ({"base64": "not base64!"}, "assets.assets/a.png.base64: is not Base64"),
    ({"base64": "YQ"}, "is not Base64"),
    ({"base64": "YQ==YQ=="}, "is not Base64"),
    ({"base64": "YQ==\n"}, "is not Base64"),
    ({"base64": "YQ__"}, "is not Base64"),
    ({"base64": "ÿÿÿÿ"}, "is not Base64"),
    ({"base64": 5}, "params of"),
    ({"base64": None}, "params of"),
    ({}, "base64"),
    ({"text": "x"}, "params of"),
    ({"base64": "YQ==", "type": "image/png"}, "type"),
    (["YQ=="], "params of"),
]


@pytest.mark.parametrize("asset, part", BAD_ENCODED, ids=[str(row[0]) for row in BAD_ENCODED])
async def test_an_encoded_asset_that_does_not_fit_is_refused_and_nothing_is_stored(
    client: GatewayClient, easel: LiveEasel, canvas: str, asset: Any, part: str
) -> None:
    for verb, name in (("canvas.create", new_session()), ("canvas.upsert", canvas)):
        problem = await refused(
            client.call(verb, canvasId=name, assets={"assets/index.html": "x", "assets/a.png": asset})
        )
        assert problem.code == 400
        assert part in problem.error["message"]
        assert files_of(easel, name) == []


async def test_an_asset_over_the_limit_is_refused_with_the_setting_that_raises_it(
    easel: LiveEasel, canvas: str
) -> None:
    large = {"base64": base64.b64encode(bytes(Settings().max_asset_bytes + 1)).decode()}
    answer = easel.post(
        "/api/rpc",
        {"method": "canvas.upsert", "params": {"canvasId": canvas, "assets": {"assets/a.png": large}}},
    )
    told = answer.json()["error"]
    assert (answer.status_code, told["details"]["setting"]) == (413, "EASEL_MAX_ASSET_BYTES")
    assert (
        told["message"]
        == "assets/a.png is larger than the limit of 5242880 bytes. EASEL_MAX_ASSET_BYTES sets the limit."
    )
    two = {f"assets/{n}.png": {"base64": "A" * 4_194_304} for n in range(2)}
    answer = easel.post(
        "/api/rpc", {"method": "canvas.upsert", "params": {"canvasId": canvas, "assets": two}}
    )
    told = answer.json()["error"]
    assert (answer.status_code, told["details"]["setting"]) == (413, "EASEL_MAX_BODY_BYTES")
    assert "EASEL_MAX_BODY_BYTES" in told["message"]


BAD_ASSETS: list[tuple[dict[str, Any], int]] = [
    ({"path": "assets/a"}, 400),
    ({"path": "assets/a", "text": "a", "base64": "YQ=="}, 400),
    ({"path": "assets/a", "base64": "not base64!"}, 400),
    ({"path": "assets/a", "text": 5}, 400),
]


@pytest.mark.parametrize("params, code", BAD_ASSETS, ids=[str(row[0]) for row in BAD_ASSETS])
async def test_an_asset_that_does_not_fit_is_refused(
    client: GatewayClient, canvas: str, params: dict[str, Any], code: int
) -> None:
    assert (await refused(client.ask("canvas.asset.put", {"canvasId": canvas, **params}))).code == code


async def test_many_put_the_same_asset_at_once_and_one_whole_version_stays(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    texts = [f"version {n} " * 500 for n in range(20)]
    puts = [
        client.call("canvas.asset.put", canvasId=canvas, path="assets/a.txt", text=text) for text in texts
    ]
    reads = [client.call("canvas.get", canvasId=canvas) for _ in range(5)]
    await asyncio.gather(*puts, *reads)
    got = await client.call("canvas.asset.get", canvasId=canvas, path="assets/a.txt")
    assert (got["text"] in texts, got["revision"]) == (True, 21)
    assert len(files_of(easel, canvas)) == 1, "the others were removed with their rows"


# --- lasting --------------------------------------------------------------------------------------------------------------


@rule("CV-02", "CV-07")
async def test_a_canvas_reads_back_unchanged_when_everyone_has_left_and_the_server_was_restarted(
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
async def test_any_instance_serves_any_canvas(two_edges: LiveEasel) -> None:
    here, there = (instance.base_url for instance in two_edges.instances)
    name = new_session()
    async with (
        GatewayClient.connected(here, two_edges.token) as one,
        GatewayClient.connected(there, two_edges.token) as other,
    ):
        await one.call("canvas.create", canvasId=name, assets={"assets/a.txt": "a"})
        assert (await other.call("canvas.patch", canvasId=name, statePatch=[add("x", 1)]))["revision"] == 2
        assert (await one.call("canvas.get", canvasId=name))["state"] == {"x": 1}
        assert (await other.call("canvas.asset.get", canvasId=name, path="assets/a.txt"))["text"] == "a"
        patches = [
            (one, other)[n % 2].call("canvas.patch", canvasId=name, statePatch=[add(f"k{n}", n)])
            for n in range(20)
        ]
        await asyncio.gather(*patches)
        assert (await one.call("canvas.get", canvasId=name))["revision"] == 22
