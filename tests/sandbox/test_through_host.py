"""The machine tools in a running Easel: runs of an agent, the audit trail, metrics, and the texts of `up` and
`doctor`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from easel.ids import OWNER
from tests.cli.commands import run_easel
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.sandbox.processes import TIMEOUT_SECONDS, new_nap, sleepers
from tests.support.processes import Launcher
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.bwrap

LOCAL = [f"local__{name}" for name in ("Bash", "Edit", "Fetch", "Glob", "Grep", "Read", "Write")]


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with LiveEasel(tmp_path_factory.mktemp("easel"), settings={"sandbox_free_mb": 0}) as live:
        yield live


def results(easel: LiveEasel, session: str, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Make these tool calls in one run and return their results."""
    message = json.dumps({"script": [{"call": tool, "args": args} for tool, args in calls]})
    run_id = easel.finish(message, session)
    found = [event.data for event in easel.events(run_id) if event.type == "tool.result"]
    return [data.get("result", data.get("error")) for data in found]


def records(easel: LiveEasel, action: str) -> list[dict[str, Any]]:
    return easel.get(f"/api/audit?action={action}").json()["records"]


def offered_tools(easel: LiveEasel) -> list[str]:
    instance = easel.instances[0]
    return sorted(name for name in easel.do(instance.tools.definitions(OWNER)) if name.startswith("local__"))


def test_runs_of_a_session_share_its_folder(easel: LiveEasel) -> None:
    session = new_session()
    results(easel, session, ("local__Write", {"path": "app/main.py", "content": "print(6 * 7)\n"}))
    [result, found, edited, again] = results(
        easel,
        session,
        ("local__Bash", {"command": "python3 main.py", "workdir": "app"}),
        ("local__Grep", {"pattern": r"6 \* 7"}),
        ("local__Edit", {"path": "app/main.py", "old_string": "7", "new_string": "8"}),
        ("local__Bash", {"command": "python3 app/main.py"}),
    )
    assert result == {"output": "42\n", "exit_code": 0, "truncated": False}
    assert [(match["path"], match["line"]) for match in found["matches"]] == [("app/main.py", 1)]
    assert edited["replacements"] == 1
    assert again["output"] == "48\n"


@rule("SB-02", "RX-54")
def test_folder_of_another_session_is_not_visible(easel: LiveEasel) -> None:
    results(easel, new_session(), ("local__Write", {"path": "secret", "content": "of the first"}))
    [listed, searched] = results(
        easel, new_session(), ("local__Bash", {"command": "ls"}), ("local__Grep", {"pattern": "first"})
    )
    assert (listed["output"], searched["matches"]) == ("", [])


@rule("SB-16", "SB-17")
def test_audit_trail_has_commands_and_violations(easel: LiveEasel) -> None:
    session = new_session()
    results(easel, session, ("local__Bash", {"command": "exit 5"}), ("local__Read", {"path": "/etc/passwd"}))

    def of_session(action: str) -> list[dict[str, Any]]:
        return [
            record["details"]
            for record in records(easel, action)
            if record.get("details", {}).get("session_id") == f"agent:main:{session}"
        ]

    wait_for_sync(
        lambda: bool(of_session("sandbox.ran") and of_session("sandbox.violation")),
        within=TIMEOUT_SECONDS,
        what="both records are stored",
    )
    [result], [violation] = of_session("sandbox.ran"), of_session("sandbox.violation")
    assert (result["sandbox_mode"], result["exit_code"]) == ("bwrap", 5)
    assert result["worker_id"].startswith("wrk_")
    assert result["sandbox_root"].startswith(str(easel.folder / "sandbox"))
    assert (violation["kind"], violation["path"]) == ("path", "/etc/passwd")


@case("X8")
@rule("SB-06")
def test_command_with_endless_output_has_a_result(easel: LiveEasel) -> None:
    [result] = results(easel, new_session(), ("local__Bash", {"command": "yes"}))
    assert result["stopped"] == "output"


@case("X8")
def test_cancelled_run_ends_its_command(easel: LiveEasel) -> None:
    nap = new_nap()
    command = f"sleep {nap} & sleep {nap}"
    run_id = easel.start(
        json.dumps({"script": [{"call": "local__Bash", "args": {"command": command}}]}), new_session()
    )
    wait_for_sync(lambda: len(sleepers(nap)) == 2, within=TIMEOUT_SECONDS, what="the command is running")
    easel.cancel(run_id)
    easel.events(run_id)
    assert easel.view(run_id)["status"] == "cancelled"
    assert sleepers(nap) == []


@rule("SB-12", "SB-17")
def test_worker_removes_and_counts_expired_folders(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, settings={"sandbox_ttl_seconds": 1.0, "sandbox_free_mb": 0}) as easel:

        def removed() -> float:
            lines = easel.get("/metrics").text.splitlines()
            [line] = [line for line in lines if line.startswith("easel_sandbox_cleanups_total ")]
            return float(line.split()[1])

        before = removed()
        [written] = results(easel, new_session(), ("local__Write", {"path": "note", "content": "x"}))
        assert written["bytes"] == 1
        wait_for_sync(
            lambda: not list((tmp_path / "sandbox").glob("*/*/note")),
            within=TIMEOUT_SECONDS,
            what="the folder is removed",
        )
        wait_for_sync(lambda: removed() > before, within=TIMEOUT_SECONDS, what="the removal is counted")
        assert "easel_sandbox_cleanup_failures_total" in easel.get("/metrics").text


@rule("SB-11")
def test_agent_in_production_has_the_file_tools_but_not_bash(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, settings={"profile": "prod"}) as easel:
        assert offered_tools(easel) == [name for name in LOCAL if name != "local__Bash"]
        [error, written] = results(
            easel,
            new_session(),
            ("local__Bash", {"command": "true"}),
            ("local__Write", {"path": "a", "content": "b"}),
        )
        assert "there is no such tool" in error
        assert written["bytes"] == 1


def test_all_machine_tools_are_offered_by_default(easel: LiveEasel) -> None:
    assert offered_tools(easel) == LOCAL


# --- texts of up and doctor ---------------------------------------------------------------------------------


@rule("RS-61", "SB-10")
def test_up_warns_that_commands_are_not_isolated(tmp_path: Path) -> None:
    with Launcher(tmp_path, settings={"SANDBOX_MODE": "logical"}) as launcher:
        [server] = launcher.ready(launcher.up())
        assert "Bash: on, WITHOUT isolation (EASEL_SANDBOX_MODE=logical)." in server.output().splitlines()


@rule("RS-61")
def test_up_and_doctor_explain_a_missing_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    doctor = run_easel("doctor", DATA=str(tmp_path / "data"), PORT="0")
    assert doctor.returncode == 0, doctor.stdout
    assert (
        "ok   Bash: off: bubblewrap is not installed; install the package `bubblewrap` and start Easel again."
        in doctor.stdout
    )
    with Launcher(tmp_path) as launcher:
        [server] = launcher.ready(launcher.up())
        assert "Bash: off: bubblewrap is not installed" in server.output()


@rule("SB-14")
def test_mode_that_cannot_be_used_is_an_error_at_start(tmp_path: Path) -> None:
    up = run_easel("up", DATA=str(tmp_path), PORT="0", SANDBOX_MODE="nsjail")
    assert (up.returncode, "EASEL_SANDBOX_MODE=nsjail is not available" in up.stderr) == (2, True), up.stderr
    assert "Traceback" not in up.stderr
    doctor = run_easel("doctor", DATA=str(tmp_path), PORT="0", SANDBOX_MODE="nsjail")
    assert doctor.returncode == 1
    assert "fail Bash: EASEL_SANDBOX_MODE=nsjail" in doctor.stdout
