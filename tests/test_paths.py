"""How many modules a button press enters, traced on a running server: the way must stay as short as it is.

`docs/design/index.md` lists the same way file by file. A profile hook on every thread records the modules of
Easel that each part enters: the request's task, the task of the execution, and the thread that writes.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.edges.http.canvas_calls import call
from tests.edges.http.live import LiveEasel

if TYPE_CHECKING:
    from types import FrameType

# The most modules that a press may enter in each part. The execution decides the start of a tool call before
# the canvas is locked, so that the writer only compares and stores.
BARS = {"request": 18, "execution": 57, "writer": 30}
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
        return {"ActionService._start": "execution", "RequestResponseCycle.run_asgi": "request"}.get(name, "")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The trace of the second press of a button, when caches are warm."""
    trace = Trace()
    threading.setprofile(trace.hook)
    try:
        with LiveEasel(tmp_path_factory.mktemp("easel"), with_worker=False) as easel:
            call(easel, "canvas.create", canvasId="c", spec=SPEC)
            call(easel, "canvas.action", canvasId="c", actionId="say", input={"text": "first"})
            trace.is_on = True
            call(easel, "canvas.action", canvasId="c", actionId="say", input={"text": "second"})
            trace.is_on = False
    finally:
        threading.setprofile(None)
    return trace


@pytest.mark.parametrize("part", BARS)
def test_press_enters_few_modules(trace: Trace, part: str) -> None:
    entered = sorted(trace.entered[part])
    assert 5 < len(entered) <= BARS[part], entered


def test_rules_that_need_no_lock_do_not_run_in_the_writer(trace: Trace) -> None:
    rules = {f"easel.core.action.{name}" for name in RULES}
    assert rules <= trace.entered["execution"]
    assert not rules & trace.entered["writer"]
    assert not [module for module in trace.entered["writer"] if ".shell" in module or ".tools" in module]
