"""Which sandbox is in force: what was asked for or nothing weaker, and a plain word where there is none."""

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
from tests.sandbox.processes import kill_whoever_runs, new_nap, sleepers, until_there_are

if TYPE_CHECKING:
    from collections.abc import Iterator

    from easel.sandbox.modes import Choice


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine on which it is not installed."""
    programs = Path(tempfile.mkdtemp(prefix="easel-programs-", dir="/var/tmp"))
    programs.chmod(0o755)  # for whoever Easel's commands are on this machine
    for name in ("bash", "sh", "unshare", "mount", "setpriv"):
        (programs / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(programs))
    yield programs
    shutil.rmtree(programs)


@pytest.fixture
def with_useless_bubblewrap(without_bubblewrap: Path) -> None:
    """A machine whose kernel does not let it."""
    program = without_bubblewrap / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    program.chmod(0o755)


# --- the choice -------------------------------------------------------------------------------------------------------


@rule("RS-61", "SB-14")
@pytest.mark.bwrap
def test_with_no_mode_set_it_is_bubblewrap_where_it_works() -> None:
    choice = choose("")
    assert (choice.mode, choice.says) == ("bwrap", "on, isolated by bubblewrap.")


@rule("RS-61")
@pytest.mark.usefixtures("without_bubblewrap")
def test_with_no_mode_set_and_no_bubblewrap_there_is_no_bash_and_it_is_said_why() -> None:
    choice = choose("")
    assert choice.mode is None
    assert choice.shell(SMALL) is None
    assert "off: bubblewrap is not installed; install the package `bubblewrap`" in choice.says
    assert "EASEL_SANDBOX_MODE=logical" in choice.says


@rule("RS-61")
@pytest.mark.usefixtures("with_useless_bubblewrap")
def test_a_bubblewrap_that_does_not_work_is_found_out_by_using_it() -> None:
    choice = choose("")
    assert choice.mode is None
    assert "No permissions to create a new namespace" in choice.says


@rule("SB-14", "SB-10")
@pytest.mark.parametrize("found", ["without_bubblewrap", "with_useless_bubblewrap"])
def test_a_mode_that_was_set_and_does_not_work_is_an_error_and_nothing_weaker(
    request: pytest.FixtureRequest, found: str
) -> None:
    request.getfixturevalue(found)
    with pytest.raises(BadSettings, match="EASEL_SANDBOX_MODE=bwrap cannot be used"):
        choose("bwrap")


@rule("SB-14")
@pytest.mark.parametrize("mode", ["nsjail", "container"])
def test_a_mode_that_is_known_and_not_built_is_refused_clearly(mode: str) -> None:
    with pytest.raises(BadSettings, match=f"{mode} is not available in this version"):
        choose(mode)


@rule("SB-14")
@pytest.mark.parametrize("mode", ["none", "docker", "BWRAP", "bwrap "])
def test_no_other_mode_can_be_selected(mode: str) -> None:
    assert MODES == ("logical", "bwrap", "nsjail", "container")
    with pytest.raises(BadSettings, match="logical, bwrap, nsjail or container"):
        choose(mode)


@rule("SB-10")
@pytest.mark.usefixtures("without_bubblewrap")
def test_without_bubblewrap_logical_is_what_is_left_and_only_by_the_users_own_word() -> None:
    choice = choose("logical")
    assert choice.mode == "logical"
    assert "WITHOUT isolation" in choice.says


def test_logical_needs_a_python_that_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(
        BadSettings, match="EASEL_SANDBOX_MODE=logical cannot be used: /nowhere/python may not be started"
    ):
        choose("logical")


@rule("SB-11")
@pytest.mark.parametrize("mode", ["", "bwrap", "logical"])
@pytest.mark.bwrap
def test_in_production_there_is_no_bash_unless_it_is_turned_on(mode: str) -> None:
    choice = choose(mode, is_prod=True)
    assert choice.mode is None
    assert "EASEL_BASH=on" in choice.says


@rule("SB-11")
@pytest.mark.bwrap
def test_in_production_it_runs_isolated_or_not_at_all() -> None:
    assert isinstance(choose("", bash="on", is_prod=True).launcher, Bubblewrap)
    with pytest.raises(BadSettings, match="isolates nothing"):
        choose("logical", bash="on", is_prod=True)


@rule("SB-11", "RS-61")
@pytest.mark.usefixtures("without_bubblewrap")
def test_in_production_nothing_weaker_takes_the_place_of_what_is_missing() -> None:
    assert choose("", bash="on", is_prod=True).mode is None


@rule("SB-11")
def test_bash_can_be_turned_off_anywhere() -> None:
    assert choose("logical", bash="off").mode is None


# --- settings ---------------------------------------------------------------------------------------------------------


@rule("SB-15", "RS-54")
def test_the_settings_of_the_rule_are_there_and_reach_the_sandbox(tmp_path: Path) -> None:
    wanted = settings.load(
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
    assert assembly.choose_sandbox(wanted).mode == "logical"
    limits = assembly.command_limits(wanted)
    assert (limits.cpu_seconds, limits.memory_bytes, limits.processes) == (7.5, 64 << 20, 10)
    assert (limits.output_bytes, limits.file_bytes, limits.free_bytes) == (2048, 3 << 20, 1 << 20)
    folders = assembly.session_folders(wanted)
    assert folders.root == tmp_path / "elsewhere"
    assert folders._ttl == 60
    assert folders._network is True


@rule("SB-15", "SB-08")
def test_the_network_is_off_and_the_folders_lie_with_the_data_unless_it_is_set(tmp_path: Path) -> None:
    wanted = Settings(data=str(tmp_path))
    assert wanted.sandbox_network == "disabled"
    assert wanted.sandbox_folder == tmp_path / "sandbox"
    assert wanted.sandbox_mode == ""
    with pytest.raises(BadSettings, match="EASEL_SANDBOX_NETWORK"):
        settings.load({"EASEL_SANDBOX_NETWORK": "yes"})
    with pytest.raises(BadSettings, match="EASEL_PROFILE"):
        settings.load({"EASEL_PROFILE": "staging"})


# --- logical: no isolation, but order ---------------------------------------------------------------------------------


@pytest.fixture
def logical(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "sandbox", choose("logical"))


@rule("SB-10", "SB-03")
async def test_logical_runs_in_the_sessions_folder_with_an_empty_environment(
    logical: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EASEL_TOKEN", "secret-of-the-host")
    assert isinstance(logical.choice.launcher, Logical)
    assert await logical.says("pwd") == f"{logical.folder()}\n"
    assert {line.partition("=")[0] for line in (await logical.says("env")).split()} <= {
        "PATH",
        "PWD",
        "SHLVL",
        "_",
        "EASEL_COMMAND",
    }
    assert (await logical.bash("mkdir sub && exit 4"))["exit_code"] == 4
    assert await logical.says("pwd") != await logical.says("cd sub && pwd")
    assert (await logical.bash("pwd", workdir="sub"))["output"] == f"{logical.folder()}/sub\n"


@case("X8")
@rule("SB-06")
async def test_logical_ends_a_command_with_all_that_it_started(logical: Machine) -> None:
    """Those too that left its group and its session."""
    nap = new_nap()
    task = asyncio.create_task(
        logical.bash(f"setsid sleep {nap} & sleep {nap} & (setsid sleep {nap} &) ; sleep {nap}")
    )
    await until_there_are(4, nap)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleepers(nap) == []


ESCAPED = "env -i setsid sleep {0} & (env -i setsid setsid sleep {0} &) ; setsid sleep {0} & sleep {0} & "


@case("X8")
@rule("SB-06")
@pytest.mark.parametrize("ends", ["by itself", "by being stopped", "by its time"])
async def test_logical_ends_what_hid_from_its_group_and_dropped_its_environment(
    logical: Machine, ends: str
) -> None:
    nap = new_nap()
    started = ESCAPED.format(nap)
    if ends == "by itself":
        assert (await logical.bash(f"{started} sleep 0.1; exit 3"))["exit_code"] == 3
    elif ends == "by its time":
        assert (await logical.bash(f"{started} wait", timeout=500))["stopped"] == "time"
    else:
        task = asyncio.create_task(logical.bash(f"{started} wait"))
        await until_there_are(4, nap)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sleepers(nap) == []


@case("X8")
@rule("SB-06")
async def test_logical_ends_a_command_when_whoever_started_it_is_killed(logical: Machine) -> None:
    """As bubblewrap does: nobody is told that a node went away, and presses again, while its command goes on."""
    nap = new_nap()
    await kill_whoever_runs(
        ESCAPED.format(nap) + "wait", mode="logical", root=logical.root, nap=nap, sleeping=4
    )
    await until_there_are(0, nap)


@rule("SB-06")
async def test_logical_counts_what_dropped_its_environment(logical: Machine) -> None:
    nap = new_nap()
    ran = await logical.bash(
        f"for i in $(seq 100); do env -i setsid sleep {nap} & done; wait", timeout=60_000
    )
    assert (ran["stopped"], sleepers(nap)) == ("processes", [])


async def test_a_command_that_kills_its_keeper_ends_all_the_same(logical: Machine) -> None:
    """A command of the same user can do that; what it left is known by its mark."""
    nap = new_nap()
    ran = await logical.bash(f"setsid sleep {nap} & kill -9 $PPID; sleep {nap}")
    assert (ran["exit_code"], sleepers(nap)) == (137, [])


async def test_under_a_keeper_a_command_is_what_it_would_be_without(logical: Machine) -> None:
    """Signals as usual, its own group, and the exit code of a signal."""
    ignored = int(
        (await logical.says("grep SigIgn /proc/self/status")).split()[1], 16
    )  # also what whoever started us ignores
    assert [one for one in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (one - 1) & 1] == []
    assert await logical.says("yes | head -1; echo ${PIPESTATUS[0]}") == "y\n141\n"
    assert (await logical.bash("kill -TERM $$"))["exit_code"] == 143
    assert (await logical.bash("trap '' TERM; kill -TERM 0; exit 6"))["exit_code"] == 6


@rule("SB-06")
@pytest.mark.parametrize(
    "command, stopped",
    [
        # No bomb here: what it takes to stop one is what this mode has not.
        ("for i in $(seq 100); do sleep NAP & done; wait", "processes"),
        (
            "for i in 1 2 3 4 5 6 7 8; do python3 -c \"import time; x = bytearray(b'x') * (64 << 20); time.sleep(60)\" & done; wait",
            "memory",
        ),
        ("yes", "output"),
        ("sleep NAP", "time"),
    ],
)
async def test_logical_stops_a_hog(logical: Machine, command: str, stopped: str) -> None:
    # A busy machine needs a while to start eight programs: time is what stops the one alone that does nothing else.
    nap = new_nap()
    ran = await logical.bash(command.replace("NAP", str(nap)), timeout=1_000 if stopped == "time" else 60_000)
    assert (ran["stopped"], ran["exit_code"]) == (stopped, 137)
    assert sleepers(nap) == []


# --- a node's own machine ---------------------------------------------------------------------------------------------


@rule("SB-04", "SB-13")
@pytest.mark.bwrap
async def test_a_node_runs_commands_in_its_roots_and_sees_nothing_else(
    tmp_path: Path, bubblewrap: Choice
) -> None:
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    for folder in (first, second, other):
        folder.mkdir()
    (other / "secret").write_text("not for nodes")
    tools = {
        one.bare_name: one for one in machine_tools("", FixedRoots([first, second]), bubblewrap.shell(SMALL))
    }

    async def bash(command: str, **args: str) -> dict[str, object]:
        return await tools["Bash"].use({"command": command, **args}, None)

    assert (await bash("pwd; echo one > note"))["output"] == f"{first}\n"
    assert (await bash("pwd; echo two > note", workdir=str(second)))["output"] == f"{second}\n"
    assert ((first / "note").read_text(), (second / "note").read_text()) == ("one\n", "two\n")
    assert (first / "note").stat().st_uid == os.geteuid(), "as that machine's user"
    assert (await bash(f"cat {other}/secret"))["exit_code"] != 0
    assert (await bash(f"echo x > {other}/x"))["exit_code"] != 0
    assert (await bash("echo x > /tmp/x && cat /tmp/x"))["output"] == "x\n"
    assert (await bash("cat /tmp/x"))["exit_code"] != 0, "their /tmp goes with the command"
    assert (await bash("for i in $(seq 100); do sleep 60 & done; wait"))["stopped"] == "processes"
