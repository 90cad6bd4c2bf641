"""Secrets of an action are variables of its command, and no process has their values as arguments."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psutil
import pytest

from easel.core.secret.mask import CUT, SecretMask
from easel.sandbox.modes import choose
from easel.sandbox.output import HEAD_BYTES, TAIL_BYTES, Output
from tests.requirements import rule
from tests.sandbox.conftest import Machine, context
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

VALUES = {
    "PLAIN": "plain-value-0123",
    "QUOTED": 'it\'s "quoted" $(id) `id` \\ & ; #',
    "LINES": "first line\nsecond = line\n",
    "UNICODE": "ümlaut 😀 ß",
    "LONG": "0123456789abcdef" * 2_048,
}


@pytest.fixture(params=["bwrap", "logical"])
def any_machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    if request.param == "logical":
        return Machine(tmp_path / "sandbox", choose("logical"))
    return request.getfixturevalue("machine")


@rule("RS-66")
@pytest.mark.bwrap
async def test_command_gets_the_values_as_its_environment(any_machine: Machine) -> None:
    for name, value in VALUES.items():
        result = await any_machine.tools["Bash"].use(
            {"command": f'printf %s "${name}"; printf "|%s" "$(env | grep -c ^{name}=)"'},
            context(),
            env=VALUES,
        )
        assert result["output"] == f"{value}|1", name


@rule("RS-66")
@pytest.mark.bwrap
async def test_environment_has_nothing_else_and_the_next_command_has_no_secret(any_machine: Machine) -> None:
    env = "env | cut -d= -f1 | grep -v ^second | sort | tr '\\n' ' '"
    used = await any_machine.tools["Bash"].use({"command": env}, context(), env={"ONE": "value-of-one"})
    after = await any_machine.tools["Bash"].use({"command": env}, context())
    assert set(used["output"].split()) - set(after["output"].split()) == {"ONE"}


@rule("RS-66")
@pytest.mark.bwrap
async def test_no_process_has_a_value_among_its_arguments(any_machine: Machine) -> None:
    pieces: list[str] = []
    running = asyncio.create_task(
        any_machine.tools["Bash"].use(
            {"command": "echo ready; cat /proc/*/cmdline | tr '\\0' ' '; sleep 60"},
            context(on_output=pieces.append),
            env=VALUES,
        )
    )
    try:
        await wait_for(lambda: "sleep 60" in "".join(pieces))
        seen = "\n".join(
            " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
        )
        assert "sleep 60" in seen
        for name, value in VALUES.items():
            assert value[:16] not in seen, name
            assert value[:16] not in "".join(pieces), name
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@rule("RS-66")
@pytest.mark.bwrap
async def test_secret_at_the_cut_of_a_long_output_is_masked(machine: Machine) -> None:
    value = "SecretAtTheCut-9876543210"
    mask = SecretMask({"CUT": value})
    for offset in range(0, 40, 7):
        command = f'head -c {32 * 1024 - offset} /dev/zero | tr "\\0" x; printf %s "$CUT"; seq 20000'
        result = await machine.tools["Bash"].use({"command": command}, context(), env={"CUT": value})
        assert result["truncated"]
        shown = mask.text(result["output"])
        assert not [length for length in range(4, len(value)) if value[:length] in shown], offset


def test_marker_of_a_cut_is_the_one_that_the_mask_knows() -> None:
    output = Output()
    output.add(b"x" * (HEAD_BYTES + TAIL_BYTES + 10))
    assert CUT in output.text()[0]
