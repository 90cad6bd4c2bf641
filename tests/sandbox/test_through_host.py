"""The tools of the machine where users meet them: an agent's runs, the audit trail, the metrics, and what the commands say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from easel.ids import OWNER
from tests.cli.test_cli import easel as command
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.sandbox.processes import TIMEOUT_SECONDS, new_nap, sleepers
from tests.support.processes import Launcher, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.bwrap

LOCAL = ["local__Bash", "local__Edit", "local__Glob", "local__Grep", "local__Read", "local__Write"]


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with LiveEasel(tmp_path_factory.mktemp("easel"), settings={"sandbox_free_mb": 0}) as live:
        yield live


def results(easel: LiveEasel, session: str, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What an agent's calls answered, in one run."""
    message = json.dumps({"script": [{"call": tool, "args": args} for tool, args in calls]})
    run_id = easel.finish(message, session)
    found = [event.data for event in easel.events(run_id) if event.type == "tool.result"]
    return [data.get("result", data.get("error")) for data in found]


def records(easel: LiveEasel, action: str) -> list[dict[str, Any]]:
    return easel.get(f"/api/audit?action={action}").json()["records"]


def offered(easel: LiveEasel) -> list[str]:
    instance = easel.instances[0]
    return sorted(name for name in easel.do(instance.tools.definitions(OWNER)) if name.startswith("local__"))


def test_an_agent_works_in_the_folder_of_its_session_from_run_to_run(easel: LiveEasel) -> None:
    session = new_session()
    results(easel, session, ("local__Write", {"path": "app/main.py", "content": "print(6 * 7)\n"}))
    [ran, found, edited, again] = results(
        easel,
        session,
        ("local__Bash", {"command": "python3 main.py", "workdir": "app"}),
        ("local__Grep", {"pattern": r"6 \* 7"}),
        ("local__Edit", {"path": "app/main.py", "old_string": "7", "new_string": "8"}),
        ("local__Bash", {"command": "python3 app/main.py"}),
    )
    assert ran == {"output": "42\n", "exit_code": 0, "truncated": False}
    assert [(one["path"], one["line"]) for one in found["matches"]] == [("app/main.py", 1)]
    assert edited["replacements"] == 1
    assert again["output"] == "48\n"


@rule("SB-02", "RX-54")
def test_another_session_sees_nothing_of_it(easel: LiveEasel) -> None:
    results(easel, new_session(), ("local__Write", {"path": "secret", "content": "of the first"}))
    [listed, searched] = results(
        easel, new_session(), ("local__Bash", {"command": "ls"}), ("local__Grep", {"pattern": "first"})
    )
    assert (listed["output"], searched["matches"]) == ("", [])


@rule("SB-16", "SB-17")
def test_the_audit_trail_tells_what_ran_and_who_tried_to_get_out(easel: LiveEasel) -> None:
    session = new_session()
    results(easel, session, ("local__Bash", {"command": "exit 5"}), ("local__Read", {"path": "/etc/passwd"}))

    def of_session(action: str) -> list[dict[str, Any]]:
        return [
            one["details"]
            for one in records(easel, action)
            if one.get("details", {}).get("session_id") == f"agent:main:{session}"
        ]

    wait_until(
        lambda: bool(of_session("sandbox.ran") and of_session("sandbox.violation")),
        within=TIMEOUT_SECONDS,
        what="both are noted",
    )
    [ran], [violation] = of_session("sandbox.ran"), of_session("sandbox.violation")
    assert (ran["sandbox_mode"], ran["exit_code"]) == ("bwrap", 5)
    assert ran["worker_id"].startswith("wrk_")
    assert ran["sandbox_root"].startswith(str(easel.folder / "sandbox"))
    assert (violation["kind"], violation["path"]) == ("path", "/etc/passwd")


@case("X8")
@rule("SB-06")
def test_huge_output_becomes_a_result_that_fits(easel: LiveEasel) -> None:
    [ran] = results(easel, new_session(), ("local__Bash", {"command": "yes"}))
    assert ran["stopped"] == "output"


@case("X8")
def test_a_run_that_is_cancelled_takes_its_command_with_it(easel: LiveEasel) -> None:
    nap = new_nap()
    command = f"sleep {nap} & sleep {nap}"
    run_id = easel.start(
        json.dumps({"script": [{"call": "local__Bash", "args": {"command": command}}]}), new_session()
    )
    wait_until(lambda: len(sleepers(nap)) == 2, within=TIMEOUT_SECONDS, what="the command runs")
    easel.cancel(run_id)
    easel.events(run_id)
    assert easel.view(run_id)["status"] == "cancelled"
    assert sleepers(nap) == []


@rule("SB-12", "SB-17")
def test_workers_remove_folders_after_their_time_to_live_and_count_them(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, settings={"sandbox_ttl_seconds": 1.0, "sandbox_free_mb": 0}) as easel:

        def removed() -> float:
            told = easel.get("/metrics").text.splitlines()
            return float(
                next(line for line in told if line.startswith("easel_sandbox_cleaned_total")).split()[1]
            )

        before = removed()
        [written] = results(easel, new_session(), ("local__Write", {"path": "note", "content": "x"}))
        assert written["bytes"] == 1
        wait_until(
            lambda: not list((tmp_path / "sandbox").glob("*/*/note")),
            within=TIMEOUT_SECONDS,
            what="the folder is gone",
        )
        wait_until(lambda: removed() > before, within=TIMEOUT_SECONDS, what="it is counted, after it is gone")
        assert "easel_sandbox_not_cleaned_total" in easel.get("/metrics").text


@rule("SB-11")
def test_in_production_an_agent_is_refused_bash_and_keeps_the_file_tools(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, settings={"profile": "prod"}) as easel:
        assert offered(easel) == [name for name in LOCAL if name != "local__Bash"]
        [refused, written] = results(
            easel,
            new_session(),
            ("local__Bash", {"command": "true"}),
            ("local__Write", {"path": "a", "content": "b"}),
        )
        assert "there is no such tool" in refused
        assert written["bytes"] == 1


def test_all_six_are_there_by_default(easel: LiveEasel) -> None:
    assert offered(easel) == LOCAL


# --- what the commands say --------------------------------------------------------------------------------------------


@rule("RS-61", "SB-10")
@pytest.mark.parametrize(
    "variables, says",
    [
        ({}, "Bash: on, isolated by bubblewrap."),
        ({"SANDBOX_MODE": "logical"}, "Bash: on, WITHOUT isolation (EASEL_SANDBOX_MODE=logical)."),
        ({"PROFILE": "prod"}, "Bash: off with EASEL_PROFILE=prod; EASEL_BASH=on turns it on, isolated."),
    ],
)
def test_up_says_whether_commands_run_and_how(tmp_path: Path, variables: dict[str, str], says: str) -> None:
    with Launcher(tmp_path, settings=variables) as launcher:
        [server] = launcher.ready(launcher.up())
        assert says in server.said().splitlines()


@rule("RS-61")
def test_without_bubblewrap_up_and_doctor_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    doctor = command("doctor", DATA=str(tmp_path / "data"), PORT="0")
    assert doctor.returncode == 0, doctor.stdout
    assert "ok   Bash: off: bubblewrap is not installed; install the package `bubblewrap`." in doctor.stdout
    with Launcher(tmp_path) as launcher:
        [server] = launcher.ready(launcher.up())
        assert "Bash: off: bubblewrap is not installed" in server.said()


@rule("SB-14")
@pytest.mark.parametrize(
    "mode, says",
    [("nsjail", "not available"), ("container", "not available"), ("docker", "logical, bwrap, nsjail or")],
)
def test_a_mode_that_cannot_be_is_an_error_at_start(tmp_path: Path, mode: str, says: str) -> None:
    started = command(
        "up", DATA=str(tmp_path), PORT="0", SANDBOX_MODE=mode
    )  # which has no longer than a command may take
    assert (started.returncode, says in started.stderr) == (2, True), started.stderr
    assert "Traceback" not in started.stderr
    doctor = command("doctor", DATA=str(tmp_path), PORT="0", SANDBOX_MODE=mode)
    assert doctor.returncode == 1
    assert "BAD  Bash:" in doctor.stdout
