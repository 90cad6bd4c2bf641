"""How many modules a button press, a run and a document edit enter, traced on a running server.

The ways must stay as short as they are; `docs/design/index.md` lists them file by file. A profile hook on
every thread records the modules of Easel that each part enters: the tasks of the requests, of the execution
and of the run, and the thread that writes.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.canvas_calls import call
from tests.edges.http.live import LiveEasel, script

if TYPE_CHECKING:
    from types import FrameType

# The most modules that each part may enter. An execution decides the start of a tool call before the canvas
# is locked, so that the writer only compares and stores. A run's requests are its POST and its stream, which
# reads the log itself or finds it read by another.
BARS = {
    "press": {"request": 19, "execution": 57, "writer": 30},
    "run": {"request": 40, "run": 41, "writer": 12},
    "edit": {"run": 65, "writer": 23},
}
PARTS = {
    "RequestResponseCycle.run_asgi": "request",
    "ActionService._start": "execution",
    "RunWorker._execute": "run",
}
RULES = {"resolution", "policy", "hints", "fetch"}  # of core.action: what needs no lock
ECHO = {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": "{{input.text}}"}, "saveAs": "said"}
SPEC = {"version": 1, "toolPolicy": {"allow": ["gsv__Echo"]}, "actions": {"say": ECHO}}


class Trace:
    """The modules of Easel that each part has entered while `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.entered: dict[str, set[str]] = {}

    def hook(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.is_on or event != "call":
            return
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("easel.") and (part := self._part()):
            self.entered.setdefault(part, set()).add(module)

    def _part(self) -> str:
        """Return the part that this frame belongs to; empty for one that is no part of the press."""
        thread = threading.current_thread().name
        if thread.startswith("sqlite-"):
            return thread.removeprefix("sqlite-")
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return ""
        name = "" if task is None else str(getattr(task.get_coro(), "__qualname__", ""))
        return PARTS.get(name, "")


def press(easel: LiveEasel, number: int) -> None:
    call(easel, "canvas.action", canvasId="c", actionId="say", input={"text": f"press {number}"})


def run(easel: LiveEasel, number: int) -> None:
    easel.finish(script({"say": f"Hello {number}"}), "talk")


def edit(easel: LiveEasel, number: int) -> None:
    """Check the session's document out, read it, patch it and check it in."""
    lease = {"lease_id": "$1.lease_id"}
    patch = f"@@ -0,0 +1 @@\n+{number}\n" if number == 1 else f"@@ -1 +1 @@\n-{number - 1}\n+{number}\n"
    calls = {
        "canvas_check_out": {},
        "canvas_read_all": lease,
        "canvas_apply_patch": {**lease, "base_revision_id": "$2.revision_id", "patch": patch},
        "canvas_check_in": lease,
    }
    easel.finish(script(*({"call": tool, "args": args} for tool, args in calls.items())), "written")
    assert easel.get("/api/documents/d").json()["text"] == f"{number}\n"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    """The traces of the second press, run and edit, when caches are warm."""
    traces: dict[str, Trace] = {}
    for act, with_worker in ((press, False), (run, True), (edit, True)):
        trace = traces[act.__name__] = Trace()
        threading.setprofile(trace.hook)
        try:
            with LiveEasel(tmp_path_factory.mktemp("easel"), with_worker=with_worker) as easel:
                call(easel, "canvas.create", canvasId="c", spec=SPEC)
                document = {"version": 1, "mode": "markdown"}
                call(
                    easel, "canvas.create", canvasId="d", spec=document, ownerSessionKey="agent:main:written"
                )
                act(easel, 1)
                trace.is_on = True
                act(easel, 2)
                trace.is_on = False
        finally:
            threading.setprofile(None)
    return traces


@pytest.mark.parametrize("act, part", [(act, part) for act, parts in BARS.items() for part in parts])
def test_act_enters_few_modules(traces: dict[str, Trace], act: str, part: str) -> None:
    entered = sorted(traces[act].entered[part])
    assert 5 < len(entered) <= BARS[act][part], entered


def test_rules_that_need_no_lock_do_not_run_in_the_writer(traces: dict[str, Trace]) -> None:
    trace = traces["press"]
    rules = {f"easel.core.action.{name}" for name in RULES}
    assert rules <= trace.entered["execution"]
    assert not rules & trace.entered["writer"]
    assert not [module for module in trace.entered["writer"] if ".shell" in module or ".tools" in module]
