"""The asset methods over `/ws`, on either store."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from easel.settings import Settings
from tests.edges.gateway.canvas_calls import refusal_of
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.gateway import GatewayClient


@rule("CV-09", "CV-34", "RS-10")
async def test_assets_are_stored_unchanged_and_deleted_with_the_canvas(
    client: GatewayClient, easel: LiveEasel
) -> None:
    name, page, pixels = new_session(), "<p>Grüße</p>\r\n", bytes(range(256)) * 20
    created = await client.call("canvas.create", canvasId=name, assets={"assets/index.html": page})
    assert (created["assets"], created["revision"]) == (["assets/index.html"], 1)
    put = await client.call(
        "canvas.asset.put", canvasId=name, path="assets/img/a.png", base64=base64.b64encode(pixels).decode()
    )
    assert (put["revision"], put["size"], put["mediaType"]) == (2, len(pixels), "image/png")
    got = await client.call("canvas.asset.get", canvasId=name, path="assets/index.html")
    assert (got["text"], got["mediaType"]) == (page, "text/html")
    got = await client.call("canvas.asset.get", canvasId=name, path="assets/img/a.png")
    assert base64.b64decode(got["base64"]) == pixels
    await client.call("canvas.asset.put", canvasId=name, path="assets/index.html", text="new")
    assert (await client.call("canvas.asset.get", canvasId=name, path="assets/index.html"))["text"] == "new"
    page = await client.call("canvas.asset.list", canvasId=name)
    assert [(asset["path"], asset["size"]) for asset in page["assets"]] == [
        ("assets/img/a.png", len(pixels)),
        ("assets/index.html", 3),
    ]
    stored = sorted(path.read_bytes() for path in files_of(easel, name))
    assert stored == sorted(["<p>Grüße</p>\r\n".encode(), b"new", pixels]), "a version has the old page"
    await client.call("canvas.asset.delete", canvasId=name, path="assets/img/a.png")
    assert (
        await refusal_of(client.call("canvas.asset.get", canvasId=name, path="assets/img/a.png"))
    ).code == 404
    assert (await client.call("canvas.get", canvasId=name))["revision"] == 4
    await client.call("canvas.delete", canvasId=name)
    assert (
        await refusal_of(client.call("canvas.asset.get", canvasId=name, path="assets/index.html"))
    ).code == 404
    assert files_of(easel, name) == []


def files_of(easel: LiveEasel, canvas: str) -> list[Path]:
    folder = (
        easel.folder / "blobs" / "accounts" / "owner" / "agents" / "main" / "canvases" / canvas / "assets"
    )
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


async def test_upsert_with_assets_replaces_all_of_them(client: GatewayClient, easel: LiveEasel) -> None:
    name = new_session()
    await client.call("canvas.upsert", canvasId=name, assets={"assets/index.html": "a", "assets/old.js": "b"})
    assert (await client.call("canvas.upsert", canvasId=name, title="x"))["assets"] == [
        "assets/index.html",
        "assets/old.js",
    ]
    replaced = await client.call("canvas.upsert", canvasId=name, assets={"assets/index.html": "c"})
    assert replaced["assets"] == ["assets/index.html"]
    stored = sorted(path.read_bytes() for path in files_of(easel, name))
    assert stored == [b"a", b"b", b"c"], "a version has the replaced ones"
    problem = await refusal_of(
        client.call("canvas.upsert", canvasId=name, assets={"assets/index.html": "d"}, expectedRevision=1)
    )
    assert problem.code == 409
    assert sorted(path.read_bytes() for path in files_of(easel, name)) == stored, "nothing new is stored"


@rule("CV-47")
@case("U4")
async def test_invalid_asset_path_or_content_is_refused_by_every_method(
    client: GatewayClient, canvas: str
) -> None:
    for path in ("../x", "/etc/passwd", "assets/%2e%2e/x", "assets/a\x00b", "ASSETS/x"):
        for method, content in (("put", {"text": "x"}), ("get", {}), ("delete", {})):
            problem = await refusal_of(
                client.ask(f"canvas.asset.{method}", {"canvasId": canvas, "path": path, **content})
            )
            assert problem.code == 400, (method, path)
        for method in ("canvas.create", "canvas.upsert"):
            name = new_session() if method == "canvas.create" else canvas
            assert (await refusal_of(client.call(method, canvasId=name, assets={path: "x"}))).code == 400
    for content in ({}, {"text": "a", "base64": "YQ=="}, {"base64": "not base64!"}, {"text": 5}):
        params = {"canvasId": canvas, "path": "assets/a", **content}
        assert (await refusal_of(client.ask("canvas.asset.put", params))).code == 400


@rule("CV-09", "CC-26")
async def test_binary_assets_are_created_with_the_canvas_and_not_stored_in_tables(easel: LiveEasel) -> None:
    """The largest allowed asset is accepted with the default settings."""
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
    answer = easel.post(
        "/api/rpc", {"method": "canvas.create", "params": {"canvasId": name, "assets": assets}}
    )
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


INVALID_ASSETS: list[tuple[Any, str]] = [
    ({"base64": "not base64!"}, "assets.assets/a.png.base64: must be Base64"),
    ({"base64": "YQ"}, "must be Base64"),
    ({"base64": "YQ==\n"}, "must be Base64"),
    ({"base64": 5}, "params of"),
    ({}, "base64"),
    ({"text": "x"}, "params of"),
    (["YQ=="], "params of"),
]


async def test_invalid_encoded_asset_is_refused_and_not_stored(
    client: GatewayClient, easel: LiveEasel, canvas: str
) -> None:
    for asset, part in INVALID_ASSETS:
        for verb, name in (("canvas.create", new_session()), ("canvas.upsert", canvas)):
            problem = await refusal_of(
                client.call(verb, canvasId=name, assets={"assets/index.html": "x", "assets/a.png": asset})
            )
            assert problem.code == 400
            assert part in problem.error["message"]
            assert files_of(easel, name) == []


async def test_oversized_asset_is_refused_with_the_name_of_the_setting(easel: LiveEasel, canvas: str) -> None:
    large = {"base64": base64.b64encode(bytes(Settings().max_asset_bytes + 1)).decode()}
    answer = easel.post(
        "/api/rpc",
        {"method": "canvas.upsert", "params": {"canvasId": canvas, "assets": {"assets/a.png": large}}},
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["details"]["setting"]) == (413, "EASEL_MAX_ASSET_BYTES")
    assert (
        error["message"]
        == "assets/a.png is larger than the limit of 5242880 bytes. EASEL_MAX_ASSET_BYTES sets the limit."
    )
    two = {f"assets/{n}.png": {"base64": "A" * 4_194_304} for n in range(2)}
    answer = easel.post(
        "/api/rpc", {"method": "canvas.upsert", "params": {"canvasId": canvas, "assets": two}}
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["details"]["setting"]) == (413, "EASEL_MAX_BODY_BYTES")
    assert "EASEL_MAX_BODY_BYTES" in error["message"]
