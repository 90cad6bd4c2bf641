"""`easel user` and `easel team`, beside a running Easel. RS-76"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.cli.commands import Completed, assert_refused, help_of, invoke_easel, run_easel
from tests.edges.http.live import WAIT_SECONDS, LiveEasel, capture_log
from tests.requirements import rule
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with capture_log(), LiveEasel(tmp_path_factory.mktemp("data"), with_worker=False) as live:
        yield live


def run(easel: LiveEasel, *words: str, **settings: str) -> Completed:
    return invoke_easel(*words, "--data", str(easel.folder), **settings)


def add(easel: LiveEasel, *names: str) -> None:
    for name in names:
        done = run(easel, "user", "add", name)
        assert done.returncode == 0, done.stderr


def value(done: Completed, name: str) -> str:
    found = re.search(rf"^{name}: (\S+)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return found[1]


def status(easel: LiveEasel, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.get(f"{easel.base_url}/api/me", headers=headers, timeout=WAIT_SECONDS).status_code


@rule("RS-76")
def test_added_user_has_a_token_and_a_link_until_disabled(easel: LiveEasel) -> None:
    done = run(easel, "user", "add", "ada", PUBLIC_URL="https://easel.example.org/")
    token, link = value(done, "Token"), value(done, "Invitation")
    assert link.startswith("https://easel.example.org/invitation?name=ada#easel_invitation_")
    assert link not in done.stderr
    assert status(easel, token) == 200
    assert "ada\n" in run(easel, "user", "list").stdout
    assert "owner  operator\n" in run(easel, "user", "list").stdout
    assert run(easel, "user", "disable", "ada").stdout == "Disabled ada.\n"
    wait_for_sync(lambda: status(easel, token) == 401, what="the token ends")
    assert re.search(r"^ada  disabled 20", run(easel, "user", "list").stdout, re.MULTILINE)
    assert "Enabled ada" in run(easel, "user", "enable", "ada").stdout
    assert status(easel, token) == 401, "it stays revoked"
    assert value(run(easel, "user", "invite", "ada"), "Invitation").startswith("http://127.0.0.1:8800/inv")
    assert run(easel, "user", "delete", "ada").stdout == "Deleted ada.\n"
    assert_refused(run(easel, "user", "add", "ada"), "The name ada already exists")


@rule("RS-76")
def test_team_and_its_members_are_administered(easel: LiveEasel) -> None:
    add(easel, "bob", "cleo")
    assert "its admin is bob" in run(easel, "team", "add", "web", "--admin", "bob").stdout
    assert run(easel, "team", "member", "add", "web", "cleo", "--role", "viewer").returncode == 0
    assert_refused(run(easel, "team", "member", "add", "web", "cleo"), "member cleo already exists")
    assert_refused(run(easel, "team", "member", "set", "web", "owner", "--role", "admin"), "no member owner")
    done = run(easel, "team", "member", "set", "web", "cleo", "--role", "boss")
    assert_refused(done, "viewer, member, admin")
    assert run(easel, "team", "member", "list", "web").stdout == "bob  admin\ncleo  viewer\n"
    assert run(easel, "team", "list").stdout == "web  2 members\n"
    assert_refused(run(easel, "team", "member", "remove", "web", "bob"), "web", "--new-admin")
    assert_refused(run(easel, "user", "disable", "bob"), "web", "--new-admin")
    done = run(easel, "team", "member", "remove", "web", "bob", "--new-admin", "cleo")
    assert done.stdout == "Removed bob from web.\n"
    assert run(easel, "team", "member", "list", "web").stdout == "cleo  admin\n"
    assert run(easel, "team", "delete", "web").stdout == "Deleted the team web.\n"
    for words in (("list", "web"), ("add", "web", "bob"), ("remove", "web", "cleo")):
        assert run(easel, "team", "member", *words).returncode == 2
    assert_refused(run(easel, "team", "delete", "web"), "no team web")
    records = easel.get("/api/audit", params={"action": "team.deleted"}).json()["records"]
    assert [(record["subject"], record["actor"]["name"]) for record in records] == [("web", "command line")]
    of_team = easel.sql("select account_id from audit where action = 'member.removed'")
    assert of_team == [{"account_id": "web"}]


@rule("RS-76")
def test_second_person_is_refused_while_commands_are_not_isolated(easel: LiveEasel) -> None:
    done = run(easel, "user", "add", "dora", SANDBOX_MODE="logical")
    assert_refused(done, "EASEL_SANDBOX_MODE is logical", "bubblewrap")
    assert "dora" not in run(easel, "user", "list").stdout


@rule("RS-76")
def test_start_is_refused_with_two_people_while_commands_are_not_isolated(tmp_path: Path) -> None:
    assert invoke_easel("user", "add", "ada", "--data", str(tmp_path)).returncode == 0
    done = run_easel("up", "--port", "0", "--data", str(tmp_path), SANDBOX_MODE="logical")
    assert_refused(done, "2 people", "easel user delete")


@pytest.mark.parametrize(
    "words",
    [
        *(["user", word] for word in ("add", "invite", "list", "disable", "enable", "delete")),
        *(["team", word] for word in ("add", "list", "delete")),
        *(["team", "member", word] for word in ("add", "set", "remove", "list")),
    ],
    ids=" ".join,
)
def test_help_of_a_command_has_an_example(words: list[str]) -> None:
    assert f"Example: `easel {' '.join(words)}" in help_of(*words)
