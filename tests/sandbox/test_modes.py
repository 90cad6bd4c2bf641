"""The choice of the sandbox mode: the one that was set or nothing weaker, with the reason if it is off."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from easel import settings
from easel.assembly import sandbox as assembly
from easel.errors import BadSettings
from easel.sandbox.bubblewrap import Bubblewrap
from easel.sandbox.logical import Logical
from easel.sandbox.modes import MODES, choose
from easel.sandbox.tools import machine_tools
from easel.sandbox.workspace import FixedRoots
from easel.settings import Settings
from tests.requirements import case, rule
from tests.sandbox.conftest import SMALL, Machine
from tests.sandbox.processes import kill_runner, new_nap, sleepers, wait_for_sleepers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from easel.sandbox.modes import Choice


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Simulate a machine without bubblewrap."""
    programs = Path(tempfile.mkdtemp(prefix="easel-programs-", dir="/var/tmp"))
    programs.chmod(0o755)  # readable for the user of the commands
    for name in ("bash", "sh", "unshare", "mount", "setpriv"):
        (programs / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(programs))
    yield programs
    shutil.rmtree(programs)


@pytest.fixture
def with_broken_bubblewrap(without_bubblewrap: Path) -> None:
    """Simulate a machine whose kernel forbids namespaces."""
    program = without_bubblewrap / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    program.chmod(0o755)


# --- the choice ---------------------------------------------------------------------------------------------


@rule("RS-61", "SB-14")
@pytest.mark.bwrap
def test_default_mode_is_bubblewrap_where_it_works() -> None:
    choice = choose("")
    assert (choice.mode, choice.description) == ("bwrap", "on, isolated by bubblewrap.")


@rule("RS-61")
@pytest.mark.usefixtures("without_bubblewrap")
def test_without_mode_and_bubblewrap_bash_is_off_with_the_reason() -> None:
    choice = choose("")
    assert choice.mode is None
    assert choice.shell(SMALL) is None
    assert "off: bubblewrap is not installed; install the package `bubblewrap`" in choice.description
    assert "EASEL_SANDBOX_MODE=logical" in choice.description


@rule("RS-61")
@pytest.mark.usefixtures("with_broken_bubblewrap")
def test_broken_bubblewrap_is_found_by_a_probe() -> None:
    choice = choose("")
    assert choice.mode is None
    assert "No permissions to create a new namespace" in choice.description


@rule("SB-14", "SB-10")
@pytest.mark.parametrize("machine", ["without_bubblewrap", "with_broken_bubblewrap"])
def test_mode_that_does_not_work_is_an_error_and_not_replaced_by_a_weaker_one(
    request: pytest.FixtureRequest, machine: str
) -> None:
    request.getfixturevalue(machine)
    with pytest.raises(BadSettings, match="EASEL_SANDBOX_MODE=bwrap cannot be used"):
        choose("bwrap")


@rule("SB-14")
@pytest.mark.parametrize("mode", ["nsjail", "container"])
def test_mode_that_is_not_implemented_is_refused(mode: str) -> None:
    with pytest.raises(BadSettings, match=f"{mode} is not available in this version"):
        choose(mode)


@rule("SB-14")
@pytest.mark.parametrize("mode", ["none", "docker", "BWRAP", "bwrap "])
def test_unknown_mode_is_refused(mode: str) -> None:
    assert MODES == ("logical", "bwrap", "nsjail", "container")
    with pytest.raises(BadSettings, match="logical, bwrap, nsjail or container"):
        choose(mode)


@rule("SB-10")
@pytest.mark.usefixtures("without_bubblewrap")
def test_logical_mode_is_used_only_when_it_is_set() -> None:
    choice = choose("logical")
    assert choice.mode == "logical"
    assert "WITHOUT isolation" in choice.description


def test_logical_mode_needs_an_executable_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(
        BadSettings, match="EASEL_SANDBOX_MODE=logical cannot be used: /nowhere/python may not be started"
    ):
        choose("logical")


@rule("SB-11")
@pytest.mark.parametrize("mode", ["", "bwrap", "logical"])
@pytest.mark.bwrap
def test_bash_is_off_in_production_unless_it_is_turned_on(mode: str) -> None:
    choice = choose(mode, is_prod=True)
    assert choice.mode is None
    assert choice.description == "off with EASEL_PROFILE=prod; EASEL_BASH=on turns it on, isolated."


@rule("SB-11")
@pytest.mark.bwrap
def test_bash_runs_only_isolated_in_production() -> None:
    assert isinstance(choose("", bash="on", is_prod=True).launcher, Bubblewrap)
    with pytest.raises(BadSettings, match="isolates nothing"):
        choose("logical", bash="on", is_prod=True)


@rule("SB-11", "RS-61")
@pytest.mark.usefixtures("without_bubblewrap")
def test_missing_bubblewrap_is_not_replaced_in_production() -> None:
    assert choose("", bash="on", is_prod=True).mode is None


@rule("SB-11")
def test_bash_can_be_turned_off() -> None:
    assert choose("logical", bash="off").mode is None


# --- settings -----------------------------------------------------------------------------------------------


@rule("SB-15", "RS-54")
def test_settings_reach_the_sandbox(tmp_path: Path) -> None:
    values = settings.load(
        {
            "EASEL_SANDBOX_MODE": "logical",
            "EASEL_SANDBOX_ROOT": str(tmp_path / "elsewhere"),
            "EASEL_SANDBOX_TTL_SECONDS": "60",
            "EASEL_SANDBOX_NETWORK": "enabled",
            "EASEL_SANDBOX_CPU_LIMIT": "7.5",
            "EASEL_SANDBOX_MEMORY_LIMIT_MB": "64",
            "EASEL_SANDBOX_PROCESSES": "10",
            "EASEL_SANDBOX_OUTPUT_BYTES": "2048",
            "EASEL_SANDBOX_FILE_LIMIT_MB": "3",
            "EASEL_SANDBOX_FREE_MB": "1",
        }
    )
    assert assembly.choose_sandbox(values).mode == "logical"
    limits = assembly.command_limits(values)
    assert (limits.cpu_seconds, limits.memory_bytes, limits.processes) == (7.5, 64 << 20, 10)
    assert (limits.output_bytes, limits.file_bytes, limits.free_bytes) == (2048, 3 << 20, 1 << 20)
    folders = assembly.session_folders(values)
    assert folders.root == tmp_path / "elsewhere"
    assert folders._ttl_seconds == 60
    assert folders._network is True


@rule("SB-15", "SB-08")
def test_defaults_are_no_network_and_folders_in_the_data_folder(tmp_path: Path) -> None:
    values = Settings(data=str(tmp_path))
    assert values.sandbox_network == "disabled"
    assert values.sandbox_folder == tmp_path / "sandbox"
    assert values.sandbox_mode == ""
    with pytest.raises(BadSettings, match="EASEL_SANDBOX_NETWORK"):
        settings.load({"EASEL_SANDBOX_NETWORK": "yes"})
    with pytest.raises(BadSettings, match="EASEL_PROFILE"):
        settings.load({"EASEL_PROFILE": "staging"})


# --- logical mode: no isolation -----------------------------------------------------------------------------


MEMORY_HOG = "import time; x = bytearray(b'x') * (64 << 20); time.sleep(60)"
MEMORY_HOGS = f'for i in $(seq 8); do python3 -c "{MEMORY_HOG}" & done; wait'


@pytest.fixture
def logical(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "sandbox", choose("logical"))


@rule("SB-10", "SB-03")
async def test_logical_command_runs_in_the_session_folder_with_an_empty_environment(
    logical: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EASEL_TOKEN", "secret-of-the-host")
    assert isinstance(logical.choice.launcher, Logical)
    assert await logical.output_of("pwd") == f"{logical.folder()}\n"
    assert {line.partition("=")[0] for line in (await logical.output_of("env")).split()} <= {
        "PATH",
        "PWD",
        "SHLVL",
        "_",
    }
    assert (await logical.bash("mkdir sub && exit 4"))["exit_code"] == 4
    assert await logical.output_of("pwd") != await logical.output_of("cd sub && pwd")
    assert (await logical.bash("pwd", workdir="sub"))["output"] == f"{logical.folder()}/sub\n"


@case("X8")
@rule("SB-06")
async def test_cancelled_logical_command_ends_with_all_its_processes(logical: Machine) -> None:
    """Including processes that left its group and its session."""
    nap = new_nap()
    task = asyncio.create_task(
        logical.bash(f"setsid sleep {nap} & sleep {nap} & (setsid sleep {nap} &) ; sleep {nap}")
    )
    await wait_for_sleepers(4, nap)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleepers(nap) == []


ESCAPED = "env -i setsid sleep {0} & (env -i setsid setsid sleep {0} &) ; setsid sleep {0} & sleep {0} & "


@case("X8")
@rule("SB-06")
@pytest.mark.parametrize("end", ["exit", "cancel", "timeout"])
async def test_logical_command_ends_processes_without_its_group_and_environment(
    logical: Machine, end: str
) -> None:
    nap = new_nap()
    processes = ESCAPED.format(nap)
    if end == "exit":
        assert (await logical.bash(f"{processes} sleep 0.1; exit 3"))["exit_code"] == 3
    elif end == "timeout":
        assert (await logical.bash(f"{processes} wait", timeout=500))["stopped"] == "time"
    else:
        task = asyncio.create_task(logical.bash(f"{processes} wait"))
        await wait_for_sleepers(4, nap)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sleepers(nap) == []


@case("X8")
@rule("SB-06")
async def test_logical_command_ends_when_easel_is_killed(logical: Machine) -> None:
    """Else a user could repeat an action of a lost node while its first command is still running."""
    nap = new_nap()
    await kill_runner(ESCAPED.format(nap) + "wait", mode="logical", root=logical.root, nap=nap, sleeping=4)
    await wait_for_sleepers(0, nap)


@rule("SB-06")
async def test_logical_mode_counts_processes_without_environment(logical: Machine) -> None:
    nap = new_nap()
    result = await logical.bash(
        f"for i in $(seq 100); do env -i setsid sleep {nap} & done; wait", timeout=60_000
    )
    assert (result["stopped"], sleepers(nap)) == ("processes", [])


async def test_reaper_does_not_change_signals_group_and_exit_code(logical: Machine) -> None:
    ignored = int((await logical.output_of("grep SigIgn /proc/self/status")).split()[1], 16)
    assert [number for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (number - 1) & 1] == []
    assert await logical.output_of("yes | head -1; echo ${PIPESTATUS[0]}") == "y\n141\n"
    assert (await logical.bash("kill -TERM $$"))["exit_code"] == 143
    assert (await logical.bash("trap '' TERM; kill -TERM 0; exit 6"))["exit_code"] == 6


@rule("SB-06")
@pytest.mark.parametrize(
    "command, stopped",
    [
        # No fork bomb: this mode cannot stop one.
        ("for i in $(seq 100); do sleep NAP & done; wait", "processes"),
        (MEMORY_HOGS, "memory"),
        ("yes", "output"),
        ("sleep NAP", "time"),
    ],
)
async def test_logical_command_is_stopped_at_its_limit(logical: Machine, command: str, stopped: str) -> None:
    # A busy machine needs a while to start eight programs, so only the last command has a short timeout.
    nap = new_nap()
    result = await logical.bash(
        command.replace("NAP", str(nap)), timeout=1_000 if stopped == "time" else 60_000
    )
    assert (result["stopped"], result["exit_code"]) == (stopped, 137)
    assert sleepers(nap) == []


# --- a node's own machine -----------------------------------------------------------------------------------


@rule("SB-04", "SB-13")
@pytest.mark.bwrap
async def test_node_command_sees_only_its_roots(tmp_path: Path, bubblewrap: Choice) -> None:
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    for folder in (first, second, other):
        folder.mkdir()
    (other / "secret").write_text("not for nodes")
    tools = {
        tool.bare_name: tool
        for tool in machine_tools("", FixedRoots([first, second]), bubblewrap.shell(SMALL))
    }

    async def bash(command: str, **args: str) -> dict[str, object]:
        return await tools["Bash"].use({"command": command, **args}, None)

    assert (await bash("pwd; echo one > note"))["output"] == f"{first}\n"
    assert (await bash("pwd; echo two > note", workdir=str(second)))["output"] == f"{second}\n"
    assert ((first / "note").read_text(), (second / "note").read_text()) == ("one\n", "two\n")
    assert (first / "note").stat().st_uid == os.geteuid(), "commands of a node run as its user"
    assert (await bash(f"cat {other}/secret"))["exit_code"] != 0
    assert (await bash(f"echo x > {other}/x"))["exit_code"] != 0
    assert (await bash("echo x > /tmp/x && cat /tmp/x"))["output"] == "x\n"
    assert (await bash("cat /tmp/x"))["exit_code"] != 0, "/tmp is removed with the command"
    assert (await bash("for i in $(seq 100); do sleep 60 & done; wait"))["stopped"] == "processes"
