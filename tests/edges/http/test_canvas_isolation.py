"""What the server gives a browser of a canvas that no person has accepted. RS-63"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.canvas_pages import call, create_canvas, policy, stranger
from tests.requirements import case, rule

if TYPE_CHECKING:
    import httpx2

    from tests.edges.http.live import LiveEasel

__all__ = ["stranger"]  # a fixture

OWN = "let inline = 1;"  # in the page that the author wrote
FRAMED = {"sec-fetch-dest": "iframe", "sec-fetch-site": "same-origin"}
LOGS: dict[str, Any] = {
    "toolPolicy": {"allow": ["gsv__LogsGet", "gsv__Clock"]},
    "state": {"note": ""},
    "actions": {
        "logs": {"kind": "tool.call", "tool": "gsv__LogsGet", "args": {"canvasId": "{{input.of}}"}},
        "clock": {"kind": "tool.call", "tool": "gsv__Clock", "confirm": "never"},
        "asks": {"kind": "tool.call", "tool": "gsv__Clock", "confirm": "always"},
        "note": {"kind": "state.patch", "patch": [{"op": "add", "path": "/note", "value": "x"}]},
    },
}


def views_of(easel: LiveEasel, name: str) -> tuple[str, str]:
    """Return the paths of the plain and of the isolated view."""
    shell = easel.get(f"/canvas/main/{name}").text
    found = re.search(r'data-view="([^"]+)" data-isolated="([^"]+)"', shell)
    assert found
    return found[1].removeprefix(easel.base_url), found[2].removeprefix(easel.base_url)


@rule("RS-63", "RS-58")
@case("U2")
def test_only_the_isolated_view_has_the_files_of_an_unaccepted_canvas(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    name = create_canvas(small_easel, accepted=False)
    plain, isolated = views_of(small_easel, name)
    generated = stranger.get(f"{plain}assets/index.html", headers=FRAMED)
    assert generated.status_code == 200
    assert "generated.js" in generated.text
    assert OWN not in generated.text
    for file in ("index.js", "more/page.html", "a.svg", "a.css"):
        refused = stranger.get(f"{plain}assets/{file}")
        assert refused.status_code == 403, file
    assert stranger.get(f"{plain}gsv.js").status_code == 200, "the generated page needs it"
    assert OWN in stranger.get(f"{isolated}assets/index.html", headers=FRAMED).text
    assert stranger.get(f"{isolated}assets/index.js").text == "let a = 1;"
    call(small_easel, "canvas.accept", canvasId=name, revision=1)
    assert OWN in stranger.get(f"{plain}assets/index.html", headers=FRAMED).text
    assert stranger.get(f"{plain}assets/index.js").text == "let a = 1;"


@rule("RS-63")
@case("U2")
@pytest.mark.parametrize("destination", ["document", "embed", "object", "frame", "fencedframe", None])
@pytest.mark.parametrize("file", ["index.html", "more/page.html"])
def test_unaccepted_page_is_shown_in_the_shell_only(
    small_easel: LiveEasel, stranger: httpx2.Client, destination: str | None, file: str
) -> None:
    """Its address may be opened on its own, in any browser. Over plain HTTP browsers omit the header."""
    _, isolated = views_of(small_easel, create_canvas(small_easel, accepted=False))
    headers = {} if destination is None else {"sec-fetch-dest": destination, "sec-fetch-site": "none"}
    answer = stranger.get(f"{isolated}assets/{file}", headers=headers)
    assert OWN not in answer.text
    assert answer.status_code == (200 if file == "index.html" else 403)
    assert "sandbox" in policy(answer)


@rule("RS-63")
def test_write_of_an_agent_withholds_the_page_from_open_views(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    name = create_canvas(small_easel)
    plain, _ = views_of(small_easel, name)
    assert stranger.get(f"{plain}assets/index.js").status_code == 200
    call(small_easel, "canvas.upsert", canvasId=name, accepted=False, assets={"assets/index.js": "evil()"})
    assert stranger.get(f"{plain}assets/index.js").status_code == 403


@rule("RS-63")
def test_token_of_a_plain_view_cannot_become_one_of_an_isolated_view(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    plain, isolated = views_of(small_easel, create_canvas(small_easel, accepted=False))
    signature = plain.rstrip("/").rpartition(".")[2]
    forged = f"{isolated.rstrip('/').rpartition('.')[0]}.{signature}/"
    assert stranger.get(f"{forged}assets/index.js").status_code == 404


@rule("RS-63")
def test_probe_has_the_connection_policy_of_a_page_and_none_that_hides_its_effect(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    plain, _ = views_of(small_easel, create_canvas(small_easel))
    probe = stranger.get(f"{plain}probe.html", headers=FRAMED)
    page = stranger.get(f"{plain}assets/index.html", headers=FRAMED)
    assert probe.headers["connection-allowlist"] == page.headers["connection-allowlist"]
    assert policy(probe) == {
        "sandbox": "allow-scripts",
        "frame-ancestors": policy(page)["frame-ancestors"],
    }


# --- actions ------------------------------------------------------------------------------------------------


@rule("RS-63", "CV-05")
def test_unaccepted_canvas_starts_no_tool_without_a_gesture(small_easel: LiveEasel) -> None:
    name = create_canvas(small_easel, spec=LOGS, accepted=False)

    def run(action: str, **params: Any) -> Any:
        body = {"method": "canvas.action", "params": {"canvasId": name, "actionId": action, **params}}
        return small_easel.post("/api/rpc", body).json()

    refused = run("clock", hasGesture=False)["error"]
    assert (refused["name"], "without a click" in refused["message"]) == ("FORBIDDEN", True)
    assert call(small_easel, "canvas.records", canvasId=name)["records"] == []
    assert run("clock", hasGesture=True)["status"] == "completed"
    assert run("asks", hasGesture=False)["status"] == "needs_confirmation", "a person decides"
    assert run("note", hasGesture=False)["status"] == "completed", "it starts no tool"
    revision = call(small_easel, "canvas.get", canvasId=name)["revision"]
    call(small_easel, "canvas.accept", canvasId=name, revision=revision)
    assert run("clock", hasGesture=False)["status"] == "completed"


@rule("RS-63")
@case("U2")
def test_unaccepted_canvas_cannot_read_the_log_of_another_one(small_easel: LiveEasel) -> None:
    """As the review did: a password that a person typed into another canvas was in that canvas's log."""
    other = create_canvas(small_easel)
    name = create_canvas(small_easel, spec=LOGS, accepted=False)

    def read(canvas_id: str) -> httpx2.Response:
        params = {"canvasId": name, "actionId": "logs", "input": {"of": canvas_id}}
        return small_easel.post("/api/rpc", {"method": "canvas.action", "params": params})

    assert read(name).json()["status"] == "completed"
    refused = read(other)
    assert (refused.status_code, refused.json()["error"]["name"]) == (403, "FORBIDDEN")
    assert "until a person accepts this canvas" in refused.json()["error"]["message"]
    revision = call(small_easel, "canvas.get", canvasId=name)["revision"]
    call(small_easel, "canvas.accept", canvasId=name, revision=revision)
    assert read(other).json()["status"] == "completed"
