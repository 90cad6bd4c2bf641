"""A person and a real model's wire form, end to end: `easel up` against the strict server of each vendor.

The vendor checks every request, so a run that completes has sent a correct conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from easel.core.document.diff import make_diff
from tests.browser.canvas import CanvasApi, open_canvas, read_to_the_end
from tests.llm.vendors import VENDORS
from tests.llm.vendors.answers import Answer, Call
from tests.llm.vendors.server import KEY, VendorServer, serve
from tests.requirements import rule
from tests.support.processes import Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEPLOY_SPEC: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["gsv__Echo"]},
    "state": {"version": "1.2.7", "deployed": None},
    "actions": {
        "deploy": {
            "kind": "tool.call",
            "tool": "gsv__Echo",
            "args": {"value": "deployed {{state.version}}"},
            "saveAs": "deployed",
            "confirm": "always",
        }
    },
}
DEPLOY_PAGE = """<!doctype html><body><button data-gsv-action="deploy">Deploy</button>
<p data-gsv-text="state.deployed.result"></p></body>"""
DOCUMENT = "".join(
    f"## Part {number // 10}\n" if number % 10 == 0 else f"- Item {number}: plain text.\n"
    for number in range(300)
)
EDITED_LINES = {
    14: "- Item 13: the first edit.",
    152: "- Item 151: the second edit.",
    299: "- The last item.",
}


class Stage:
    """An Easel whose host-wide model is one vendor's server."""

    def __init__(self, api: CanvasApi, vendor: VendorServer) -> None:
        self.api = api
        self.vendor = vendor

    async def ask(self, session_id: str, text: str, *answers: Answer) -> dict[str, Any]:
        """Send a message that the model answers in these steps. Returns the run, which must complete."""
        self.vendor.answers.extend(answers)
        run_id = self.api.post("/api/runs", {"session_id": session_id, "message": text})["run_id"]
        path = f"/api/runs/{run_id}"
        run = await self.api.until(
            lambda: (run := self.api.get(path))["status"] not in ("queued", "running") and run, "the run"
        )
        assert run["status"] == "completed", str(self.vendor.rejections)[:3000]
        assert not self.vendor.answers
        assert not self.vendor.rejections
        return run


@pytest.fixture(params=sorted(VENDORS))
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with serve(VENDORS[request.param]()) as vendor, Launcher(tmp_path) as launcher:
        (process,) = launcher.ready(
            launcher.up(PROVIDER=request.param, MODEL="a-model", API_KEY=KEY, BASE_URL=vendor.base_url)
        )
        with CanvasApi(process) as api:
            yield Stage(api, vendor)


@rule("CV-49", "CT-01")
async def test_person_presses_the_button_of_a_canvas_that_the_model_made(page: Page, stage: Stage) -> None:
    upsert = Call(
        "gsv__Canvas",
        {
            "operation": "upsert",
            "canvasId": "deploy",
            "title": "Deploy",
            "spec": DEPLOY_SPEC,
            "assets": {"assets/index.html": DEPLOY_PAGE},
        },
    )
    run = await stage.ask(
        "team",
        "Make me a canvas to deploy.",
        Answer(text="I make it.", thinking="A button and a line.", calls=(upsert,)),
        Answer(text="The canvas is ready."),
    )
    assert run["usage"]["input_tokens"] > 0
    frame = await open_canvas(page, stage.api.server, "deploy")
    await frame.get_by_role("button", name="Deploy").click()
    await read_to_the_end(page, "consent", "consent-approve")
    await page.get_by_role("button", name="Approve").click()
    await stage.api.until(lambda: stage.api.state("deploy")["deployed"], "the result")
    assert stage.api.state("deploy")["deployed"]["result"] == "deployed 1.2.7"
    await expect(page.locator("#consent")).to_be_hidden()


@rule("CT-01", "CT-46", "CT-54", "CT-63")
async def test_model_makes_exactly_three_edits_of_a_long_document(stage: Stage) -> None:
    api = stage.api
    api.rpc(
        "canvas.create",
        canvasId="plan",
        spec={"version": 1, "mode": "markdown"},
        ownerSessionKey="agent:main:writers",
    )
    api.put_json("/api/documents/plan", {"text": DOCUMENT})
    lines = DOCUMENT.splitlines()
    for number, line in EDITED_LINES.items():
        lines[number - 1] = line
    edited = "\n".join(lines) + "\n"
    reads = tuple(
        Call(
            "canvas_read_lines",
            {"lease_id": "$1.lease_id", "start_line": at - 3, "end_line": min(at + 3, 300)},
        )
        for at in EDITED_LINES
    )
    patch = Call("canvas_apply_patch", {"lease_id": "$1.lease_id", "patch": make_diff(DOCUMENT, edited)})
    await stage.ask(
        "writers",
        "Change items 13 and 151, and the last one.",
        Answer(calls=(Call("canvas_check_out"),)),
        Answer(thinking="Three places.", calls=reads),
        Answer(calls=(patch,)),
        Answer(calls=(Call("canvas_check_in", {"lease_id": "$1.lease_id"}),)),
        Answer(text="All three are changed."),
    )
    document = api.get("/api/documents/plan")
    assert document["text"] == edited
    assert document.get("lease") is None
    [by_assistant, by_person] = api.get("/api/documents/plan/history")["versions"]
    assert (by_person["author"]["kind"], by_assistant["author"]["kind"]) == ("person", "assistant")
    await stage.ask("writers", "Thank you.", Answer(text="You are welcome."))
    assert "All three are changed." in str(stage.vendor.requests[-1]), "the conversation goes on"
    assert "Canvas update (do not display to user)" in str(stage.vendor.requests[-1])
    shown = api.get("/api/sessions/writers/messages")["messages"]
    assert [message["role"] for message in shown] == ["user", "assistant", "user", "assistant"]
