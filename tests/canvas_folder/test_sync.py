"""The calls that change a canvas on the server into that of a folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from easel.canvas_folder.api_client import ApiClient, RequestRefused
from easel.canvas_folder.sync import ServerCanvas, push
from easel.core.canvas.folder import FolderCanvas
from easel.errors import BadInput
from easel.ids import CanvasId
from tests.requirements import rule

SPEC = {"version": 1, "state": {"n": 0}}
TOO_LARGE = RequestRefused("TOO_LARGE", "The body is too large. EASEL_MAX_BODY_BYTES sets the limit.")


def folder_canvas(**parts: Any) -> FolderCanvas:
    return FolderCanvas(**{"canvas_id": CanvasId("c"), "agent_id": "main", **parts})


OLD = folder_canvas(
    title="T",
    spec={"version": 1},
    state={"n": 1},
    assets={"assets/index.html": b"1", "assets/b.png": b"\xff"},
)
NEW = folder_canvas(spec=SPEC, assets={"assets/index.html": b"2", "assets/c.png": b"\xff"})
ON_SERVER = ServerCanvas(OLD, revision=7)


class Client:
    """Records the calls, and refuses the first one if there is a reason."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._problem = problem

    def call(self, method: str, **params: Any) -> Any:
        self.calls.append((method, params))
        if len(self.calls) == 1 and self._problem is not None:
            raise self._problem
        return {"revision": 7 + len(self.calls)}


def push_to(client: Client, on_server: ServerCanvas, new: FolderCanvas, **options: Any) -> Any:
    return push(cast(ApiClient, client), on_server, new, **options)


@rule("RS-59")
def test_spec_that_the_folder_does_not_have_is_not_accepted_with_it() -> None:
    client, page = Client(), folder_canvas(assets={"assets/index.html": b"2"})
    of_others = ServerCanvas(replace(OLD, spec={**SPEC, "actions": {}}), revision=7, is_accepted=False)
    with pytest.raises(BadInput, match=r"spec.json: the folder has none.*easel canvas export"):
        push_to(client, of_others, page)
    assert client.calls == []
    assert push_to(client, of_others, page, is_accepted=False).revision == 8
    assert push_to(client, replace(of_others, is_accepted=True), page).revision == 9


def test_equal_canvas_is_not_sent() -> None:
    client = Client()
    assert push_to(client, ON_SERVER, OLD) is None
    assert client.calls == []


@rule("CV-45")
def test_canvas_is_one_change_of_the_revision_that_was_read() -> None:
    client = Client()
    result = push_to(client, ON_SERVER, NEW, is_accepted=False)
    [(method, params)] = client.calls
    assert method == "canvas.upsert"
    assert params["expectedRevision"] == 7
    assert params["accepted"] is False
    assert params["assets"] == {"assets/index.html": "2", "assets/c.png": {"base64": "/w=="}}
    assert (
        result.describe()
        == "spec.json, assets/index.html, assets/c.png saved, assets/b.png removed; revision 8"
    )


@rule("CV-45")
def test_new_canvas_must_not_exist_yet() -> None:
    client = Client()
    assert "created from spec.json" in push_to(client, ServerCanvas(folder_canvas()), NEW).describe()
    assert client.calls[0][1]["expectedRevision"] == 0


@rule("RS-59", "CV-45")
def test_large_canvas_is_checked_and_loses_its_acceptance_before_an_asset_changes() -> None:
    client = Client(TOO_LARGE)
    result = push_to(client, ON_SERVER, NEW, is_accepted=False)
    (method, params), *rest = client.calls[1:]
    assert (method, params["expectedRevision"], params["accepted"]) == ("canvas.upsert", 7, False)
    assert params["spec"] == SPEC
    assert "assets" not in params
    assert [(method.rpartition(".")[2], params["path"]) for method, params in rest] == [
        ("delete", "assets/b.png"),
        ("put", "assets/index.html"),
        ("put", "assets/c.png"),
    ]
    assert result.revision == 12


REFUSALS = [
    ("actions.look.tool: is unknown", "spec.json: actions.look.tool: is unknown"),
    ("state is larger than the limit.", "spec.json: state is larger than the limit."),
    ("assets/c.png is larger than the limit.", "assets/c.png is larger than the limit."),
]


@pytest.mark.parametrize("text, expected", REFUSALS)
def test_refusal_names_the_file_that_it_is_about(text: str, expected: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        push_to(Client(RequestRefused("BAD_INPUT", text)), ON_SERVER, NEW)
    assert str(refused.value) == expected


@rule("CV-45")
def test_refusal_after_a_change_by_others_names_the_way_out() -> None:
    with pytest.raises(RequestRefused, match="Others changed the canvas in the meantime; repeat the command"):
        push_to(Client(RequestRefused("REVISION_CONFLICT", "Expected revision 7.")), ON_SERVER, NEW)
