"""The shared commands with hostile and plain values, run for real: no value becomes a command. RS-71"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.shell.template import ShellTemplate, Terms, compile_template
from easel.core.values.template import Template, parse_template
from easel.errors import BadInput
from tests.requirements import case, rule
from tests.sandbox.conftest import SMALL, Machine
from tests.sandbox.shell_world import FAKES, FILES, load, prepare, run_all

if TYPE_CHECKING:
    from pathlib import Path

    from easel.sandbox.modes import Choice

PLAIN = [
    "evil",
    "x/evil",
    "evil.py",
    "BASH_ENV=./evil",
    "SHELL=./evil",
    "+so./evil.vim",
    "env",
    "id--",
    "repo",
    ".",
    ",d",
    "1/e",
    "EASEL_TEXT_1",
]
# What the names of the placeholders suggest; those with other characters are named in `text`.
VALUES = {
    "n": "3",
    "id": "42",
    "port": "443",
    "month": "2026-07",
    "from": "2026-07-01",
    "to": "2026-07-31",
    "host": "web1.example.org",
    "domain": "example.org",
    "ip": "10.0.0.7",
    "repo": "team/app",
    "file": "in/a.csv",
    "version": "1.4.2",
    "tag": "v1.4.2-rc.1",
    "branch": "feature/login",
    "archive": "app-1.4.2.tar.gz",
    "package": "left-pad@1.3.0",
    "key": "orders:42",
    "env": "prod",
    "service": "api",
    "site": "example.org",
    "ns": "shop",
    "container": "web-1",
    "pod": "api-7d9f-x2",
    "db": "shop",
    "app": "orders",
    "script": "build:css",
    "room": "living_room",
    "user": "ann",
    "name": "Ärzte",
    "x": "two",
    "message": "Fix: don't \"quote\" $HOME; it's `fine`",
    "q": "can't connect",
    "pattern": "time out *",
    "since": "2 hours ago",
}
ANY_TEXT = {"input.message", "input.q", "input.pattern", "input.since"}
URL_QUERY = "search?q={{input.q}}"  # then comes `| jq`, so the words are joined by + as in any address
MOVED = ("/srv", "/run", "/backup", "/var")  # folders that the sandbox does not have


@pytest.fixture
def world(tmp_path: Path, bubblewrap: Choice) -> Machine:
    limits = replace(SMALL, cpu_seconds=280, processes=200)
    return Machine(tmp_path / "sandbox", bubblewrap, limits)


def compiled(text: str, terms: Terms | None = None) -> ShellTemplate | None:
    template = parse_template(text, "command")
    assert isinstance(template, Template)
    try:
        return compile_template(template, "command", terms or Terms())
    except BadInput:
        return None


def filled(template: ShellTemplate | None, value: str) -> tuple[str, dict[str, str]] | None:
    if template is None:
        return None
    try:
        command, variables = template.fill([value] * len(template.slots), "command")
    except BadInput:
        return None
    return command, dict(variables)


@rule("RS-71", "RS-16")
@case("X1")
@pytest.mark.bwrap
async def test_hostile_commands_are_refused_or_do_no_harm(world: Machine) -> None:
    groups: list[list[tuple[str, dict[str, str]]]] = []
    for text in load("hostile-commands.json"):
        if "npm install" in text:
            continue  # which package is the author's choice; it is in the other fixture, too
        template = parse_template(text, "command")
        assert isinstance(template, Template), text
        named = Terms(texts=tuple(name.key for name in template.placeholders))
        values = [*load("shell-values.json"), *PLAIN]
        found = [filled(compiled(text), value) for value in values]
        found += [filled(compiled(text, named), value) for value in values]
        runs = [run for run in found if run is not None]
        groups += [runs[start : start + 10] for start in range(0, len(runs), 10)]
    assert sum(map(len, groups)) > 1_000
    prepare(world.folder(), FAKES, FILES)
    harmful = await run_all(world, groups)
    assert [groups[number] for number in harmful] == []


@rule("RS-71")
@pytest.mark.bwrap
async def test_realistic_commands_run_with_realistic_values(world: Machine) -> None:
    commands, expected = list[tuple[str, dict[str, str]]](), list[list[str]]()
    for text in load("commands.json"):
        template = parse_template(text, "command")
        if not isinstance(template, Template):
            continue
        values = [VALUES[name.path[-1]] for name in template.placeholders]
        if URL_QUERY in text and "| jq" in text:
            values = ["red+shoes"]
        used = [name.key for name in template.placeholders]
        terms = Terms(texts=tuple(name for name in used if name in ANY_TEXT and values != ["red+shoes"]))
        command = compile_template(template, text, terms)
        shell, variables = command.fill(values, text)
        for folder in MOVED:
            shell = shell.replace(f" {folder}/", f" root{folder}/")
        commands.append((shell.replace("SCRATCH", "root"), dict(variables)))
        expected.append(values)
    names = {word for text, _ in commands for word in text.replace("(", " ").split()}
    real = {"sh", "bash", "cat", "echo", "sed", "jq", "awk", "test", "timeout", "cd"}
    record = FAKES["npm"].replace("printf", '[ -t 0 ] || cat >> "$LOG" 2>/dev/null; printf')
    programs = [name for name in sorted(names) if name.isidentifier() or name == "docker"]
    fakes = dict.fromkeys({*programs, "ansible-playbook", "redis-cli"} - real, record)
    files = {
        "deploy": record,
        "deploy.sh": record,
        "check": record,
        "orders.json": '{"orders": [{"id": "42"}]}',
        "package.json": "{}",
        "access.log": "10.0.0.7 GET\n",
        "src/a": "can't connect\n",
        ".env": "VERSION=1\n",
        "root/run/api.pid": "1",
        "root/srv/api/x": "",
        "root/srv/example.org/a.tmp": "",
        "root/backup/x": "",
        "root/var/log/time out 1": "",
        "root/var/log/api.log": "",
        "scripts/x": "",
    }
    prepare(world.folder(), fakes, files)
    await run_all(world, [[command] for command in commands])
    cases = world.folder() / "cases"
    log = (cases / "log").read_bytes().decode("utf-8", "replace")
    failed = []
    for number, (command, _) in enumerate(commands):
        written = "".join(
            path.read_text("utf-8", "replace") for path in (cases / f"w{number}").rglob("*") if path.is_file()
        )
        output = (cases / f"{number}.out").read_text("utf-8", "replace")
        if not all(value in log + written + output + command for value in expected[number]):
            failed.append((command, "a value is missing"))
        elif (code := (cases / f"{number}.rc").read_text().strip()) != "0":
            failed.append((command, code, output))
    assert failed == []
