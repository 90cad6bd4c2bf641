"""How much a person is asked, and what isolates commands: two settings, neither of which changes anything about the other. SB-01

Pressed through a real gateway, with the real tools of this machine.
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
    "look": call_tool("local__Glob", args={"pattern": "*"}, confirm="auto"),
    "look freely": call_tool("local__Glob", args={"pattern": "*"}),
    "look with care": call_tool("local__Glob", args={"pattern": "*"}, confirm="always"),
    "act": call_tool("local__Bash", args=COMMAND, confirm="auto"),
    "act freely": call_tool("local__Bash", args=COMMAND),
    "act with care": call_tool("local__Bash", args=COMMAND, confirm="always"),
    "note": set_state("/n", 1),
    "note freely": set_state("/n", 1, confirm="never"),
    "note with care": set_state("/n", 1, confirm="always"),
}
WITH_CARE = {"look with care", "act with care", "note with care"}

ASKS = {
    # A person is asked about every one.
    "minimal": set(ACTIONS),
    # About those of a tool that does more than read, whatever they declare; a canvas's own state is no tool.
    "trusted": WITH_CARE | {"act", "act freely"},
    # As each declares it. RS-13
    "full-access": WITH_CARE | {"act"},
}


@rule("SB-01", "RS-13", "RS-14")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("word", ASKS)
@pytest.mark.bwrap
async def test_each_word_asks_what_it_says_and_the_same_in_every_sandbox(
    tmp_path: Path, word: str, mode: str
) -> None:
    wanted = {"approval_mode": word, "sandbox_mode": mode, "sandbox_free_mb": 0}
    with LiveEasel(tmp_path, settings=wanted, with_worker=False) as easel:
        async with GatewayClient.connected(easel.base_url, easel.token) as client:
            ids = {says: says.replace(" ", "_") for says in ACTIONS}
            board = await CanvasClient.create(client, {ids[says]: action for says, action in ACTIONS.items()})
            answers = {says: await board.run(ids[says]) for says in ACTIONS}
            assert {
                says for says, answer in answers.items() if answer["status"] == "needs_confirmation"
            } == ASKS[word]
            assert {says for says, answer in answers.items() if answer["status"] == "completed"} == set(
                ACTIONS
            ) - ASKS[word]
            # What isolates the command is the same whether somebody was asked about it or not.
            act = answers["act freely"]
            ran = await board.confirm(act) if act["status"] == "needs_confirmation" else act
            assert (ran["result"]["exit_code"], ran["result"]["output"]) == (0, "ran\n")

            def modes() -> set[str]:
                found = easel.get("/api/audit?action=sandbox.ran").json()["records"]
                return {record["details"]["sandbox_mode"] for record in found}

            await asyncio.to_thread(
                wait_for_sync, lambda: bool(modes()), within=TIMEOUT_SECONDS, what="the command is noted"
            )
            assert modes() == {mode}


@rule("SB-01")
@pytest.mark.parametrize("word", ASKS)
@pytest.mark.bwrap
def test_what_is_asked_and_what_is_isolated_are_set_apart(tmp_path: Path, word: str) -> None:
    for mode in MODES:
        wanted = settings.load({"EASEL_APPROVAL_MODE": word, "EASEL_SANDBOX_MODE": mode})
        assert services.action_limits(wanted).floor is APPROVAL_MODES[word]
        assert sandbox.choose_sandbox(wanted).mode == mode
    offered = [
        [one.definition for one in machine_tools("local", FixedRoots([tmp_path]), choose(mode).shell(SMALL))]
        for mode in MODES
    ]
    assert offered[0] == offered[1], (
        "what a tool says of itself, and so what is asked before it, is the same in every mode"
    )


@rule("SB-01")
def test_the_words_are_those_of_the_rule_and_no_others() -> None:
    assert list(APPROVAL_MODES) == ["minimal", "trusted", "full-access"]
    assert settings.Settings().approval_mode == "full-access"
    for word in APPROVAL_MODES:
        assert settings.load({"EASEL_APPROVAL_MODE": word}).approval_mode == word
    for other in ("never", "always", "Minimal", "full_access"):
        with pytest.raises(BadSettings, match=r"`minimal` or `trusted` or `full-access`"):
            settings.load({"EASEL_APPROVAL_MODE": other})
