"""Commands of a node of GSV that go on after the answer."""

from __future__ import annotations

from typing import Any

import pytest

from easel.core.tool.long_command import check_has_ended
from easel.errors import ToolFailed
from tests.requirements import rule

RUNNING = {"status": "running", "sessionId": "exec-1", "output": ""}


@rule("RS-67")
def test_command_that_still_runs_is_an_error_with_its_id() -> None:
    with pytest.raises(ToolFailed) as failed:
        check_has_ended("node-a__Bash", RUNNING | {"sessionId": "exec-1\n" + "x" * 500})
    assert "still runs on the node as exec-1x" in failed.value.message
    assert "node-a__Process" in failed.value.message
    assert len(failed.value.message) < 400


@rule("RS-67")
@pytest.mark.parametrize(
    "tool, result",
    [
        ("node-a__Bash", RUNNING | {"status": "completed"}),
        ("node-a__Bash", RUNNING | {"status": "failed"}),
        ("node-a__Bash", {"status": "running"}),
        ("node-a__Bash", "running"),
        ("node-a__Deploy", RUNNING),
        ("local__Bash", RUNNING),
    ],
)
def test_other_results_are_taken_as_they_are(tool: str, result: Any) -> None:
    check_has_ended(tool, result)
