"""Hostile values, and the installed shells that the tests run them through.

The shared corpus `shell-values.json` is read from beside a developer's clone if it exists; the values below
are always used.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[4] / "shared" / "fixtures" / "shell-values.json"

OURS = [
    # substitutions
    "$(touch PWN)", "`touch PWN`", "x$(touch${IFS}PWN)", "$((`touch PWN`))", "${x:-$(touch PWN)}",
    "a[$(touch PWN)]", "$(<PWN)", "$'\\x60touch PWN\\x60'",
    # ends of a command, of a line, of a quote, of a comment, of a here-document
    "; touch PWN", "&& touch PWN", "|| touch PWN", "| touch PWN", "a&touch PWN&", "a\ntouch PWN",
    "a\r\ntouch PWN", "\ntouch PWN\n", ";;touch PWN", "'; touch PWN; '", '"; touch PWN; "',
    "'\"'\"'; touch PWN; #", "\\'; touch PWN #", '\\"; touch PWN #', "')touch PWN('", ") touch PWN (",
    "# touch PWN", "EOF\ntouch PWN\nEOF", "'\ntouch PWN\n'", '"\ntouch PWN\n"', "done; touch PWN",
    "esac; touch PWN", "} ; touch PWN ; {",
    # redirections and words
    "> PWN", ">PWN", ">>PWN", "<PWN", "2>PWN", "a b", "my service", " a ", "\ta\t", "a  b", "a\n\nb", "\n",
    " ", "",
    # expansions
    "*", "?", "[a-z]*", "~", "~root", "~+", "{a,b}", "{1..3}", "$HOME", "${IFS}", "$IFS", "$_", "$$", "$@",
    "$1", "!!", "!$", "=ls", "%1", "%s%n",
    # quotes and backslashes
    "'", "''", '"', '""', "\\", "a\\", "\\\\", "\\n", "\\$HOME", "`", "$", "'\\''", "a'b\"c`d$e\\f",
    "'$(touch PWN)'", '"$(touch PWN)"',
    # other alphabets, and bytes that some shells used internally
    "é漢字", "\u0301", "Á\u0088", "\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088", "\x01", "\x7f",
    "\x01\x01\x7f", "\x1b[31m", "\u2028", "\u00a0", "😀", "\ufeff",
    # plain names, which may stay unquoted
    "api", "7", "1.2.7", "in", "do", "esac", "if", "a,b", "a=b", "a:b", "/bin/sh", "x/y", "root", "@", "a@b",
    "+x", "true", "0x10",
]  # fmt: skip
OPTIONS = ["--output=PWN", "-rf", "-", "--", "-e", "--config=x", "-o PWN", "@file", "@/etc/passwd"]

CONTEXTS = {
    "unquoted": "./deploy {{x}}",
    "double": './deploy "{{x}}"',
    "single": "./deploy '{{x}}'",
    "mid_word": "./deploy v-{{x}}-z",
    "assignment": 'V={{x}}; ./deploy "$V"',
    "cmd_subst": './deploy "$(echo {{x}})"',
    "nested_sh": 'bash -c "./deploy {{x}}"',
    "heredoc": './deploy "$(cat <<EOF\n{{x}}\nEOF\n)"',
    "arith": './deploy "$(( {{x}} ))"',
}
EVALUATED = {"cmd_subst", "nested_sh", "heredoc", "arith"}  # in these contexts the spec is refused

DEPLOY = "#!/bin/sh\nfor a; do printf '%s\\0' \"$a\"; done\n"
PRELUDE = "show() { for a; do printf '%s\\0' \"$a\"; done; }\n"


def corpus() -> tuple[dict[str, str], list[str]]:
    """Return the contexts and values: the ones above and the shared ones."""
    shared: dict[str, Any] = (
        json.loads(SHARED.read_text(encoding="utf-8")) if SHARED.exists() else {"contexts": {}, "values": []}
    )
    return CONTEXTS | shared["contexts"], list(dict.fromkeys([*OURS, *OPTIONS, *shared["values"]]))


def installed_shells() -> list[list[str]]:
    """Return the command of every installed shell, each binary once."""
    commands = [
        ["/bin/sh"],
        ["bash"],
        ["bash", "--posix"],
        ["dash"],
        ["busybox", "sh"],
        ["ksh"],
        ["mksh"],
        ["zsh"],
        ["yash"],
    ]
    installed = {
        (str(Path(found).resolve()), *command[1:]): [found, *command[1:]]
        for command in commands
        if (found := shutil.which(command[0]))
    }
    return list(installed.values())


SHELLS = installed_shells()


@dataclass(frozen=True)
class ShellFolder:
    """A folder with a program `./deploy` that prints its arguments, each followed by NUL."""

    path: Path

    def run(self, shell: Sequence[str], command: str, *, path: str = "/usr/bin:/bin") -> bytes:
        process = subprocess.run(
            [*shell, "-c", command],
            cwd=self.path,
            env={"PATH": path, "HOME": "/no/home", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=100,  # hundreds of programs, on a machine that may be busy
            check=False,
        )
        return process.stdout

    def arguments(self, shell: Sequence[str], command: str) -> list[str]:
        return self.run(shell, command).decode("utf-8", "surrogateescape").split("\0")[:-1]

    @property
    def is_breached(self) -> bool:
        return (self.path / "PWN").exists()


def search_path_with(folder: Path, *programs: str) -> str:
    """Return a search path with only these programs."""
    folder.mkdir(exist_ok=True)
    for program in programs:
        if not (folder / program).exists():
            (folder / program).symlink_to(shutil.which(program) or program)
    return str(folder)


def shell_folder(folder: Path) -> ShellFolder:
    (folder / "deploy").write_text(DEPLOY, encoding="utf-8")
    (folder / "deploy").chmod(0o755)
    return ShellFolder(folder)
