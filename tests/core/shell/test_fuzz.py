"""Fuzz: a plain value in an accepted place changes nothing that a parser sees beyond its place. RS-71"""

from __future__ import annotations

import ast
import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from easel.core.shell.template import ShellTemplate, Terms, compile_template
from easel.core.values.template import Template, parse_template
from easel.errors import BadInput
from tests.core.shell.hostile import SHELLS
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAIRS = 20_000
NEUTRAL = "Qq0"  # takes the place of the value in the expected tree
ATOMS = [
    "{{state.x}}",
    "{{state.x}}",
    "{{state.x}}",
    "'",
    '"',
    "`",
    "$",
    "$(",
    ")",
    "$((",
    "))",
    "${v:-",
    "}",
    "{",
    "<(",
    "(",
    "[[ ",
    " ]]",
    "[ ",
    " ]",
    " ",
    "\n",
    ";",
    "|",
    "||",
    "&&",
    "&",
    ">",
    "<",
    ">>",
    "2>",
    "<<E\n",
    "\nE\n",
    "<<<",
    "#",
    "\\",
    "~",
    "*",
    "a",
    "b=",
    "show",
    "show ",
    "x ",
    "=",
    "/",
    "if ",
    "then ",
    "fi",
    "for v in ",
    "do ",
    "done",
    "case ",
    " in ",
    "a) ",
    "esac",
    ";;",
    "function f",
    "f() ",
    "let ",
    "! ",
    "1",
    "$v",
    "$1",
    "sh -c ",
    "-c",
    "eval ",
    "python3 -c ",
    "jq ",
    "awk ",
    ",",
    ".",
]
FRAMES = [
    "{}",
    "show {} {{{{state.x}}}}",
    'show "{}{{{{state.x}}}}"',
    "show '{}{{{{state.x}}}}'",
    "show $({} {{{{state.x}}}})",
    "if show; then show {}{{{{state.x}}}}; fi",
    "cat <<E\n{} {{{{state.x}}}}\nE\nshow {}",
    "{} | show {{{{state.x}}}}",
    "case a in {}{{{{state.x}}}}) show;; esac",
    'for v in {} {{{{state.x}}}}; do show "$v"; done',
    "show ${{v:-{}{{{{state.x}}}}}}",
]
VALUES = [
    "evil",
    "a,b",
    "a=b",
    "x/y",
    "EOF",
    "E",
    "do",
    "in",
    "esac",
    "fi",
    "then",
    "a@b",
    "a+b",
    "a:b",
    "a-b",
    "1",
    "12",
    "1.2",
    "_",
    "if",
    "é漢字",
    "EASEL_TEXT_1",
    "a" * 40,
    "A\u0301",
    "done",
    "e",
    "n",
    "0",
    "x_y",
]


def compiled(text: str) -> ShellTemplate | None:
    template = parse_template(text, "command")
    if not isinstance(template, Template):
        return None
    try:
        return compile_template(template, "command", Terms())
    except BadInput:
        return None


def fill(template: ShellTemplate, value: str) -> str | None:
    try:
        return template.fill([value] * len(template.slots), "command")[0]
    except BadInput:
        return None


def neutral(template: ShellTemplate) -> str:
    """Return the command with a word that no grammar knows, or with digits where only these fit."""
    parts = iter(template.slots)
    return "".join(
        part if isinstance(part, str) else "90" if next(parts).digits else NEUTRAL
        for part in template.template.parts
    )


def pairs(seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield a filled command, its value, and the command with a neutral value."""
    chance = random.Random(seed)
    while True:
        inner = "".join(chance.choices(ATOMS, k=chance.randint(1, 7)))
        template = compiled(chance.choice(FRAMES).format(inner, inner))
        for value in chance.sample(VALUES, 6) if template else ():
            if template and (command := fill(template, value)) is not None:
                digits = {slot.digits for slot in template.slots}
                if len(digits) == 1:
                    yield command, value, neutral(template)


def trees(commands: list[str], shell: list[str], folder: Path) -> list[str]:
    """Return how the shell reads each command: bash prints its tree, others only whether it parses."""
    if shell[0].endswith("bash"):
        # A subshell, because a text with a } too many ends the function, and the rest of it runs.
        script = 'for c; do (eval "t() {\n$c\n}"; declare -f t) 2>/dev/null </dev/null; printf "\\0"; done'
    else:
        script = 'for c; do "$0" -nc "$c" 2>/dev/null; printf "%s\\0" "$?"; done'
    found: list[str] = []
    for start in range(0, len(commands), 400):
        chunk = commands[start : start + 400]
        done = subprocess.run(
            [*shell, "-c", script, shell[0], *chunk],
            capture_output=True,
            timeout=100,
            check=False,
            env={"PATH": ""},
            cwd=folder,
        )
        read = done.stdout.decode("utf-8", "replace").split("\0")[:-1]
        assert len(read) == len(chunk), done.stderr[:2_000]
        found += read
    return found


@rule("RS-71", "RS-16")
@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shell[0].endswith(("bash", "dash"))][:2])
def test_plain_value_changes_nothing_that_a_shell_reads(shell: list[str], tmp_path: Path) -> None:
    source = pairs(71)
    found = [next(source) for _ in range(PAIRS // 2)]
    filled = trees([command for command, _, _ in found], shell, tmp_path)
    expected = trees([command for _, _, command in found], shell, tmp_path)
    for (command, value, plain), tree, other in zip(found, filled, expected, strict=True):
        known = NEUTRAL if NEUTRAL in plain else "90"
        assert tree == other.replace(known, value), (command, value)


@rule("RS-71")
def test_plain_value_in_a_string_of_python_changes_nothing_else() -> None:
    chance = random.Random(7)
    atoms = [
        *"'\"#{}()%\\,+ \n",
        "print(",
        "f'",
        'f"',
        "r'",
        "'''",
        "x",
        "=",
        "{{state.x}}",
        "'{{state.x}}'",
        '"a {{state.x}}"',
    ]
    count = 0
    while count < PAIRS // 2:
        code = "".join(chance.choices(atoms, k=chance.randint(1, 8)))
        quoted = "'" + code.replace("'", "'\\''") + "'"
        if (template := compiled(f"python3 -c {quoted}")) is None:
            continue
        count += 1
        value = chance.choice(VALUES)
        if fill(template, value) is None or any(slot.digits for slot in template.slots):
            continue
        try:
            tree = ast.dump(ast.parse(code.replace("{{state.x}}", NEUTRAL)))
        except (SyntaxError, ValueError):
            continue
        assert ast.dump(ast.parse(code.replace("{{state.x}}", value))) == tree.replace(NEUTRAL, value), code
