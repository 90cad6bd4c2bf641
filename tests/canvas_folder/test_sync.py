"""The calls that change a canvas on the server into that of a folder."""

from __future__ import annotations

from typing import Any, cast

import pytest

from easel.canvas_folder.api_client import ApiClient, RequestRefused, ServerUnreachable
from easel.canvas_folder.sync import ServerCanvas, push
from easel.core.canvas.folder import FolderCanvas
from easel.ids import CanvasId
from tests.requirements import rule

SPEC = {"version": 1, "state": {"n": 0}}


def folder_canvas(**parts: Any) -> FolderCanvas:
    return FolderCanvas(**{"canvas_id": CanvasId("c"), "agent_id": "main", **parts})


OLD = folder_canvas(
    title="T",
    spec={"version": 1},
    state={"n": 1},
    assets={"assets/index.html": b"1", "assets/b.png": b"\xff"},
)
NEW = folder_canvas(spec=SPEC, assets={"assets/index.html": b"2", "assets/c.png": b"\xff"})
ON_SERVER = ServerCanvas(OLD, {"revision": 7})


class Client:
    """Records the calls, and refuses the one with the given number."""

    def __init__(self, refused: int | None = None, problem: Exception | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._refused, self._problem = refused, problem

    def call(self, method: str, **params: Any) -> Any:
        self.calls.append((method, params))
        if len(self.calls) - 1 == self._refused and self._problem is not None:
            raise self._problem
        return {"revision": 7 + len(self.calls)}

    @property
    def steps(self) -> list[str]:
        return [f"{method.removeprefix('canvas.')} {params.get('path', '')}" for method, params in self.calls]


def push_to(client: Client, on_server: ServerCanvas | None, new: FolderCanvas, **options: Any) -> Any:
    return push(cast(ApiClient, client), on_server, new, **{"max_bytes": 100_000, **options})


def test_equal_canvas_is_not_sent() -> None:
    client = Client()
    assert push_to(client, ON_SERVER, OLD) is None
    assert client.calls == []


@rule("CV-45")
def test_canvas_that_fits_into_a_request_is_one_change_of_the_revision_that_was_read() -> None:
    client = Client()
    result = push_to(client, ON_SERVER, NEW, is_accepted=False)
    [(method, params)] = client.calls
    assert method == "canvas.upsert"
    assert params["expectedRevision"] == 7
    assert params["accepted"] is False
    assert params["assets"] == {"assets/index.html": "2", "assets/c.png": {"base64": "/w=="}}
    assert (
        result.describe()
        == "spec.json, assets/c.png, assets/index.html saved, assets/b.png removed; revision 8"
    )


def test_large_canvas_is_sent_by_asset_with_the_page_last_and_then_the_spec() -> None:
    client = Client()
    push_to(client, ON_SERVER, NEW, max_bytes=0)
    assert client.steps == [
        "asset.delete assets/b.png",
        "asset.put assets/c.png",
        "asset.put assets/index.html",
        "upsert ",
    ]
    assert client.calls[-1][1]["spec"] == SPEC


@rule("RS-59")
def test_large_canvas_loses_its_acceptance_before_its_page_changes() -> None:
    client = Client()
    push_to(client, ON_SERVER, NEW, max_bytes=0, is_accepted=False)
    assert client.calls[0] == ("canvas.upsert", {"canvasId": "c", "accepted": False})


@rule("CV-17")
def test_large_new_canvas_begins_with_its_state_and_gets_its_spec_last() -> None:
    client = Client()
    push_to(client, None, NEW, max_bytes=0)
    assert client.steps[0] == client.steps[-1] == "upsert "
    assert client.calls[0][1] == {"canvasId": "c", "agentId": "main", "state": {"n": 0}}
    assert client.calls[-1][1] == {"canvasId": "c", "spec": SPEC, "state": {"n": 0}}


def test_lower_limit_of_the_server_is_respected() -> None:
    client = Client(0, RequestRefused("TOO_LARGE", "The body is too large."))
    assert push_to(client, ON_SERVER, NEW) is not None
    assert client.steps[1:] == [
        "asset.delete assets/b.png",
        "asset.put assets/c.png",
        "asset.put assets/index.html",
        "upsert ",
    ]


@pytest.mark.parametrize(
    "problem", [RequestRefused("BAD_INPUT", "It is too odd."), ServerUnreachable("It does not answer.")]
)
def test_interrupted_steps_name_the_way_to_complete_them(problem: Exception) -> None:
    client = Client(2, problem)
    with pytest.raises(type(problem), match="changed in part; repeat the command to complete it"):
        push_to(client, ON_SERVER, NEW, max_bytes=0)
    assert len(client.calls) == 3


def test_refusal_names_the_files() -> None:
    with pytest.raises(RequestRefused, match=r"^assets/c\.png: It is too odd\."):
        push_to(Client(1, RequestRefused("BAD_INPUT", "It is too odd.")), ON_SERVER, NEW, max_bytes=0)
