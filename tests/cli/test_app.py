"""The command line as a whole: help, errors of usage, `easel settings`, `easel migrate`."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from easel import __main__ as entry_point
from easel import settings
from easel.cli.app import app
from tests.cli.commands import (
    SECRET,
    TIMEOUT_SECONDS,
    assert_refused,
    environment_of,
    help_of,
    invoke_easel,
    run_easel,
)
from tests.support.postgres import create_database, drop_database
from tests.support.processes import EASEL

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = ["up", "demo", "api", "worker", "node", "migrate", "doctor"]
GROUPED_COMMANDS = [
    ["token", "revoke"],
    ["audit", "verify"],
    ["canvas", "export"],
    ["settings", "list"],
    ["settings", "set"],
    ["settings", "rotate"],
]
UNREACHABLE = f"postgresql://u:{SECRET}@127.0.0.1:1/d"  # no process listens on port 1


# --- help ---------------------------------------------------------------------------------------------------


def test_commands_are_exactly_those_of_the_contract() -> None:
    names = [
        command.name or str(getattr(command.callback, "__name__", "")) for command in app.registered_commands
    ]
    assert sorted(names) == sorted(COMMANDS)
    overview = invoke_easel()
    assert all(name in overview.stdout + overview.stderr for name in COMMANDS)


@pytest.mark.parametrize("words", [*([name] for name in COMMANDS), *GROUPED_COMMANDS], ids=" ".join)
def test_help_of_a_command_has_an_example_and_named_values(words: list[str]) -> None:
    text = help_of(*words)
    assert re.search(rf"Example: .*easel {' '.join(words)}", text), text
    options = [line for line in text.splitlines() if line.startswith("  --")]
    assert options
    assert not [line for line in options if re.search(r"<\S+>", line)], "types of Python"


def test_help_is_complete_in_a_narrow_terminal() -> None:
    result = CliRunner(env={"COLUMNS": "30", "TERM": "dumb"}).invoke(app, ["up", "--help"])
    assert "Address to listen on" in " ".join(result.output.split())
    assert "…" not in result.output


def test_version_is_printed() -> None:
    assert re.fullmatch(r"easel \d+\.\d+\.\d+\n", invoke_easel("--version").stdout)


def test_unknown_command_is_refused_and_help_is_offered() -> None:
    done = invoke_easel("paint")
    assert done.returncode == 2
    assert "--help" in done.stderr
    assert "paint" in done.stderr


def test_console_script_is_the_same_program() -> None:
    (script,) = (point for point in entry_points(group="console_scripts") if point.name == "easel")
    assert script.load() is entry_point.main


# --- refusals -----------------------------------------------------------------------------------------------

REFUSALS: list[tuple[str, list[str], dict[str, str], list[str]]] = [
    ("api on SQLite", ["api"], {}, ["easel api", "EASEL_DATABASE_URL", "easel up"]),
    ("worker on SQLite", ["worker"], {}, ["easel worker", "EASEL_DATABASE_URL", "easel up"]),
    ("port in words", ["up"], {"PORT": "abc"}, ["EASEL_PORT", "abc"]),
    ("port option in words", ["up", "--port", "abc"], {}, ["--port must be a whole number", "abc"]),
    ("port too large", ["up", "--port", "99999"], {}, ["--port must be at most 65535, not 99999"]),
    (
        "short token on a public address",
        ["up", "--host", "0.0.0.0"],
        {"TOKEN": "abc"},
        ["EASEL_TOKEN", "16", "0.0.0.0"],
    ),
    (
        "unknown user",
        ["token", "create", "--kind", "user", "--user", "ann"],
        {},
        ["no user ann", "easel user list"],
    ),
    (
        "reserved node id",
        ["node", "--id", "gsv", "--url", "ws://127.0.0.1:1/ws"],
        {},
        ["--id", "gsv is reserved"],
    ),
    ("reserved node of a token", ["token", "create", "--node", "gsv"], {}, ["--node", "gsv is reserved"]),
    ("unknown log level", ["up"], {"LOG": "loud"}, ["EASEL_LOG", "debug, info"]),
    (
        "unknown kind of database",
        ["migrate"],
        {"DATABASE_URL": f"mysql://u:{SECRET}@h/d"},
        ["EASEL_DATABASE_URL", "postgresql"],
    ),
    (
        "unreachable database",
        ["migrate"],
        {"DATABASE_URL": UNREACHABLE},
        ["127.0.0.1:1", "refused", "EASEL_DATABASE_URL"],
    ),
    (
        "unreachable database of tokens",
        ["token", "list"],
        {"DATABASE_URL": UNREACHABLE},
        ["127.0.0.1:1", "refused", "EASEL_DATABASE_URL"],
    ),
    ("invalid public address", ["up"], {"PUBLIC_URL": "http://["}, ["EASEL_PUBLIC_URL"]),
    ("unknown host", ["up", "--host", "nonsense.invalid"], {}, ["nonsense.invalid"]),
    ("data folder in a device", ["up", "--data", "/dev/null/easel"], {}, ["/dev/null/easel"]),
    ("data folder is a file", ["up", "--data", "/dev/null"], {}, ["/dev/null"]),
]


@pytest.mark.parametrize("name, arguments, variables, parts", REFUSALS, ids=[row[0] for row in REFUSALS])
def test_invalid_use_is_refused_in_one_sentence(
    tmp_path: Path, name: str, arguments: list[str], variables: dict[str, str], parts: list[str]
) -> None:
    defaults = {"DATA": str(tmp_path), "PORT": "0", "TOKEN": SECRET}
    assert_refused(invoke_easel(*arguments, **defaults | variables), *parts)


def test_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "owner-token").write_text("\n")
    assert_refused(invoke_easel("up", DATA=str(tmp_path), PORT="0"), "owner-token", "empty")


def test_file_that_is_not_a_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "easel.db").write_text("some notes, and not a database at all")
    assert_refused(invoke_easel("up", DATA=str(tmp_path), PORT="0"), "easel.db")
    assert (tmp_path / "easel.db").read_text().startswith("some notes")


def test_port_in_use_is_refused_with_advice(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_refused(invoke_easel("up", "--port", str(port), DATA=str(tmp_path)), str(port), "--port")


def test_command_with_closed_output_succeeds(tmp_path: Path) -> None:
    """An unknown setting makes it log, too."""
    command = shlex.join([*EASEL, "token", "list"])
    done = subprocess.run(
        ["sh", "-c", f"{command} <&- >&- 2>&-"],
        env=environment_of(DATA=str(tmp_path), UNKNOWN="x"),
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0


# --- settings and migrate -----------------------------------------------------------------------------------


def test_settings_lists_every_row_with_its_default_and_description() -> None:
    done = invoke_easel(
        "settings", CLAIM_SECONDS="3", TOKEN=SECRET, DATABASE_URL=f"postgresql://u:{SECRET}@h/d"
    )
    assert done.returncode == 0
    for row in settings.rows():
        assert f"{row.variable}=" in done.stdout
        assert row.description in done.stdout
    assert "EASEL_CLAIM_SECONDS=3.0   (default 15.0)" in done.stdout
    assert SECRET not in done.stdout


def test_unknown_setting_is_reported_with_the_nearest_name() -> None:
    listed = run_easel("settings", DATABSE_URL="x", FOO="x")
    assert "EASEL_DATABSE_URL: unknown setting; did you mean EASEL_DATABASE_URL?" in listed.stdout
    assert "EASEL_FOO: unknown setting." in listed.stdout
    assert "did_you_mean='EASEL_DATABASE_URL'" in listed.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_second_migrate_has_nothing_to_do(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    variables: dict[str, Any] = {"DATA": str(tmp_path)}
    if kind == "postgres":
        server = request.getfixturevalue("postgres")
        variables["DATABASE_URL"] = url = create_database(server)
        request.addfinalizer(lambda: drop_database(server, url.rpartition("/")[2]))
    first, second = invoke_easel("migrate", **variables), invoke_easel("migrate", **variables)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "applied 0001" in first.stdout
    assert "Nothing to do" in second.stdout
    assert first.stdout.splitlines()[-1] == second.stdout.splitlines()[-1]
    assert "version" in second.stdout
