"""Fuzz: a plain value in an accepted place changes nothing that a parser sees beyond its place. RS-71"""

from __future__ import annotations

import ast
import itertools
import random
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from easel.core.shell.template import ShellTemplate, Terms, compile_template
from easel.core.values.template import Template, parse_template
from easel.errors import BadInput
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Compared pairs of a template and a plain value: 20,000 together.
BASH_PAIRS, DASH_PAIRS, PYTHON_PAIRS = 10_000, 5_000, 5_000
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
    """Yield a filled command, its value, and the command with a neutral value, each pair once."""
    chance = random.Random(seed)
    seen: set[str] = set()
    while True:
        inner = "".join(chance.choices(ATOMS, k=chance.randint(1, 7)))
        template = compiled(chance.choice(FRAMES).format(inner, inner))
        if template is None or len({slot.digits for slot in template.slots}) != 1:
            continue
        plain = neutral(template)
        for value in VALUES if plain not in seen else ():
            if (command := fill(template, value)) is not None:
                yield command, value, plain
        seen.add(plain)


def outputs(commands: list[str], shell: str, script: str, folder: Path) -> list[str]:
    """Return what the script prints of each command, which it ends with NUL."""
    found: list[str] = []
    for start in range(0, len(commands), 400):
        chunk = commands[start : start + 400]
        done = subprocess.run(
            [shell, "-c", script, shell, *chunk],
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


# A subshell, because a text with a } too many ends the function, and the rest of it runs.
TREE = 'for c; do (eval "t() {\n$c\n}"; declare -f t) 2>/dev/null </dev/null; printf "\\0"; done'
# dash has no printer of its tree, so the commands run: their arguments and errors are a trace. Files cannot
# be made in a folder that is gone.
TRACE = """
/bin/mkdir gone; cd gone; /bin/rmdir ../gone
for name in a b x sh python3 jq awk let; do
    eval "$name() { printf '$name %s <%s>\\n' \\$# \"\\$*\" >&3; }"
done
show() { printf "show $# <%s>\\n" "$@" >&3; echo "$*"; }
cat() { while read -r line; do printf 'cat <%s>\\n' "$line" >&3; done; }
run() { eval "$c"; }
for c; do (run) 3>&1 2>&1 >/dev/null </dev/null; printf '\\0'; done
"""
# What a trace depends on besides arguments: processes at once, process ids, real files, and tests.
UNSTABLE = re.compile(r"&|\$\$|\||>.*/|<.*/|\[|case")


def compare(
    shell: str, script: str, source: Iterator[tuple[str, str, str]], count: int, folder: Path
) -> None:
    """Compare that many pairs of which the shell reads the neutral one."""
    compared = 0
    while compared < count:
        found = list(itertools.islice(source, 3_000))
        texts = list(dict.fromkeys(text for command, _, plain in found for text in (command, plain)))
        read = dict(zip(texts, outputs(texts, shell, script, folder), strict=True))
        for command, value, plain in found:
            if NEUTRAL in plain or "90" in plain:
                expected = read[plain].replace(NEUTRAL if NEUTRAL in plain else "90", value)
                assert read[command] == expected, (command, value)
                compared += bool(expected.strip()) and "yntax error" not in expected
    assert compared >= count


def shell_named(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@rule("RS-71", "RS-16")
def test_plain_value_changes_nothing_in_the_tree_of_bash(tmp_path: Path) -> None:
    compare(shell_named("bash"), TREE, pairs(71), BASH_PAIRS, tmp_path)


@rule("RS-71", "RS-16")
def test_plain_value_changes_nothing_in_what_dash_runs(tmp_path: Path) -> None:
    source = (pair for pair in pairs(16) if NEUTRAL in pair[2] and not UNSTABLE.search(pair[2]))
    compare(shell_named("dash"), TRACE, source, DASH_PAIRS, tmp_path)


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
    count, seen = 0, set[str]()
    while count < PYTHON_PAIRS:
        code = "".join(chance.choices(atoms, k=chance.randint(1, 8)))
        try:
            tree = ast.dump(ast.parse(code.replace("{{state.x}}", NEUTRAL)))
        except (SyntaxError, ValueError):
            continue
        quoted = "'" + code.replace("'", "'\\''") + "'"
        template = compiled(f"python3 -c {quoted}") if code not in seen else None
        seen.add(code)
        if template is None or any(slot.digits for slot in template.slots):
            continue
        for value in VALUES:
            if fill(template, value) is not None:
                filled = ast.parse(code.replace("{{state.x}}", value))
                assert ast.dump(filled) == tree.replace(NEUTRAL, value), code
                count += 1
