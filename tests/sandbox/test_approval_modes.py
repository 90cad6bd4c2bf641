"""Approval mode and sandbox mode are independent settings. SB-01

Actions are run through a real gateway, with the real machine tools.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easel import settings
from easel.assembly import sandbox, services
from easel.core.action.policy import APPROVAL_MODES
from easel.errors import BadSettings
from easel.sandbox.modes import choose
from easel.sandbox.tools import machine_tools
from easel.sandbox.workspace import FixedRoots
from tests.edges.gateway.action_fixtures import CanvasClient, call_tool, set_state
from tests.edges.http.live import LiveEasel
from tests.requirements import rule
from tests.sandbox.conftest import SMALL
from tests.sandbox.processes import TIMEOUT_SECONDS
from tests.support.gateway import GatewayClient
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from pathlib import Path

MODES = ("logical", "bwrap")
COMMAND = {"command": "echo ran"}

ACTIONS: dict[str, dict[str, Any]] = {
    "read": call_tool("local__Glob", args={"pattern": "*"}, confirm="auto"),
    "read freely": call_tool("local__Glob", args={"pattern": "*"}),
    "read with care": call_tool("local__Glob", args={"pattern": "*"}, confirm="always"),
    "act": call_tool("local__Bash", args=COMMAND, confirm="auto"),
    "act freely": call_tool("local__Bash", args=COMMAND),
    "act with care": call_tool("local__Bash", args=COMMAND, confirm="always"),
    "note": set_state("/n", 1),
    "note freely": set_state("/n", 1, confirm="never"),
    "note with care": set_state("/n", 1, confirm="always"),
}
WITH_CARE = {"read with care", "act with care", "note with care"}

CONFIRMED = {
    # Every action needs a confirmation.
    "minimal": set(ACTIONS),
    # Actions of tools that do more than read, whatever they declare; the state of a canvas is no tool.
    "trusted": WITH_CARE | {"act", "act freely"},
    # Each action as it declares. RS-13
    "full-access": WITH_CARE | {"act"},
}


@rule("SB-01", "RS-13", "RS-14")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("approval_mode", CONFIRMED)
@pytest.mark.bwrap
async def test_approval_mode_decides_confirmations_in_every_sandbox(
    tmp_path: Path, approval_mode: str, mode: str
) -> None:
    values = {"approval_mode": approval_mode, "sandbox_mode": mode, "sandbox_free_mb": 0}
    with LiveEasel(tmp_path, settings=values, with_worker=False) as easel:
        async with GatewayClient.connected(easel.base_url, easel.token) as client:
            ids = {name: name.replace(" ", "_") for name in ACTIONS}
            board = await CanvasClient.create(client, {ids[name]: action for name, action in ACTIONS.items()})
            answers = {name: await board.run(ids[name]) for name in ACTIONS}
            assert {
                name for name, answer in answers.items() if answer["status"] == "needs_confirmation"
            } == CONFIRMED[approval_mode]
            assert {name for name, answer in answers.items() if answer["status"] == "completed"} == set(
                ACTIONS
            ) - CONFIRMED[approval_mode]
            # The isolation does not depend on the confirmation.
            act = answers["act freely"]
            result = await board.confirm(act) if act["status"] == "needs_confirmation" else act
            assert (result["result"]["exit_code"], result["result"]["output"]) == (0, "ran\n")

            def modes() -> set[str]:
                found = easel.get("/api/audit?action=sandbox.ran").json()["records"]
                return {record["details"]["sandbox_mode"] for record in found}

            await asyncio.to_thread(
                wait_for_sync, lambda: bool(modes()), within=TIMEOUT_SECONDS, what="the command is recorded"
            )
            assert modes() == {mode}


@rule("SB-01")
@pytest.mark.parametrize("approval_mode", CONFIRMED)
@pytest.mark.bwrap
def test_approval_and_sandbox_mode_are_set_separately(tmp_path: Path, approval_mode: str) -> None:
    for mode in MODES:
        values = settings.load({"EASEL_APPROVAL_MODE": approval_mode, "EASEL_SANDBOX_MODE": mode})
        assert services.action_limits(values).floor is APPROVAL_MODES[approval_mode]
        assert sandbox.choose_sandbox(values).mode == mode
    offered = [
        [
            tool.definition
            for tool in machine_tools("local", FixedRoots([tmp_path]), choose(mode).shell(SMALL))
        ]
        for mode in MODES
    ]
    assert offered[0] == offered[1], "definitions, and so confirmations, are the same in every mode"


@rule("SB-01")
def test_approval_modes_are_those_of_the_rule() -> None:
    assert list(APPROVAL_MODES) == ["minimal", "trusted", "full-access"]
    assert settings.Settings().approval_mode == "full-access"
    for approval_mode in APPROVAL_MODES:
        assert settings.load({"EASEL_APPROVAL_MODE": approval_mode}).approval_mode == approval_mode
    for other in ("never", "always", "Minimal", "full_access"):
        with pytest.raises(BadSettings, match=r"`minimal` or `trusted` or `full-access`"):
            settings.load({"EASEL_APPROVAL_MODE": other})
