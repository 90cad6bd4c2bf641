"""Hostile values, and a folder in which a value could do harm.

The shared corpus `shell-values.json` is read from beside a developer's clone if it exists; the values below
are always used.
"""

import json
from dataclasses import dataclass
from pathlib import Path

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

DEPLOY = "#!/bin/sh\nfor a; do printf '%s\\0' \"$a\"; done\n"


def corpus() -> list[str]:
    """Return the values: the ones above and the shared ones."""
    shared: list[str] = json.loads(SHARED.read_text(encoding="utf-8"))["values"] if SHARED.exists() else []
    return list(dict.fromkeys([*OURS, *OPTIONS, *shared]))


@dataclass(frozen=True)
class ShellFolder:
    """A folder with a program `./deploy` that prints its arguments, each followed by NUL."""

    path: Path

    @property
    def is_breached(self) -> bool:
        return (self.path / "PWN").exists()


def shell_folder(folder: Path) -> ShellFolder:
    (folder / "deploy").write_text(DEPLOY, encoding="utf-8")
    (folder / "deploy").chmod(0o755)
    return ShellFolder(folder)
