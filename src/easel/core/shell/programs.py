"""Tables of programs that evaluate their arguments, and the detection of a command's program.

Owns the lists of shells, interpreters, wrappers and unsafe variables. The listed programs pass text to a
shell or run it as a program, now or later, on this or another machine. The lists cannot be complete: if a
program that is not listed evaluates its arguments, the author of the spec is responsible, as for a call with
an argument list.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from easel.core.shell.lexer import Word


def _names(*lists: str) -> frozenset[str]:
    return frozenset(name for names in lists for name in names.split())


SHELLS = _names(
    "sh bash dash ash zsh ksh ksh93 mksh pdksh yash fish csh tcsh rbash busybox pwsh powershell cmd nu"
)
# Programs that run a script file; the arguments after the file are data.
INTERPRETERS = SHELLS | _names(
    "python perl ruby node nodejs deno bun php lua luajit tclsh wish expect osascript Rscript ghci jshell"
)
STANDARD_INPUT = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})

# Programs whose arguments must not contain a value.
EVALUATORS = _names(
    # Shell builtins: text becomes commands, arithmetic or the name of a variable.
    "eval . source trap alias unalias let exit return shift break continue read readarray mapfile getopts",
    "unset declare typeset local integer float set shopt enable bind complete compgen fc history hash",
    # Programs that start a shell, here or on another machine.
    "ssh slogin rsh mosh scp sftp rsync su runuser script watch xargs parallel at batch crontab tmux screen",
    # Programs with a language of their own that can run commands.
    "awk gawk mawk nawk sed gsed make gmake ninja vi vim nvim ex ed emacs gdb lldb m4 dc",
)
# Builtins that change how the shell parses later commands: a template must not use them.
SYNTAX_CHANGING_BUILTINS = frozenset({"alias", "unalias", "shopt", "enable"})
# Operators of `test` whose operands some shells evaluate as arithmetic.
TEST_ARITHMETIC = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"})
FIND_PROGRAMS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})

# Variables that decide which program the shell or a child process runs: no value may be assigned to them.
_CHOOSE_PROGRAMS = (
    "PATH CDPATH FPATH ENV SHELL SHELLOPTS BASHOPTS IFS PS[0-4] EDITOR VISUAL PAGER MANPAGER BROWSER "
    "LESSOPEN LESSCLOSE _ LD_.* DYLD_.* BASH.* PYTHON.* PERL.* RUBY.* NODE_OPTIONS NODE_PATH "
    ".*JAVA.*_OPTIONS MAKEFLAGS MAKEFILES .*_COMMAND .*_WRAPPER "
    "GIT_(?:SSH|EDITOR|SEQUENCE_EDITOR|PAGER|ASKPASS|EXTERNAL_DIFF|EXEC_PATH|TEMPLATE_DIR|CONFIG.*)"
)
# Variables whose assignments are evaluated as arithmetic, which can run commands.
_ARE_ARITHMETIC = (
    "RANDOM SRANDOM SECONDS OPTIND LINENO HIST.* EPOCH.* PPID UID EUID GID EGID GROUPS COLUMNS LINES TMOUT "
    "FUNCNEST"
)
UNSAFE_VARIABLES = re.compile("|".join(_names(_CHOOSE_PROGRAMS, _ARE_ARITHMETIC)))
# Variables that the shell sets from words of other commands, which may contain a value.
ALWAYS_TAINTED = frozenset(
    {"_", "REPLY", "BASH_COMMAND", "BASH_EXECUTION_STRING", "MAPFILE", "OPTARG", "BASH_REMATCH"}
)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that runs another program, named in its arguments, and the options it accepts here."""

    flags: frozenset[str] = frozenset()
    with_value: frozenset[str] = frozenset()
    operands: int = 0  # arguments between the options and the program's name
    takes_variables: bool = False  # whether NAME=value may precede the program's name


def _wrapper(
    flags: str = "", with_value: str = "", operands: int = 0, *, takes_variables: bool = False
) -> Wrapper:
    return Wrapper(_names(flags), _names(with_value), operands, takes_variables)


WRAPPERS: Mapping[str, Wrapper] = {
    "sudo": _wrapper(
        "-n -E -H -S -k -b", "-u -g -h -p -C -D -R -T -U -r -t --user --group", takes_variables=True
    ),
    "doas": _wrapper("-n", "-u -C"),
    "env": _wrapper("-i -", "-u -C --unset --chdir", takes_variables=True),
    "nohup": _wrapper(),
    "setsid": _wrapper("-c -f -w"),
    "nice": _wrapper("", "-n --adjustment"),
    "ionice": _wrapper("-t", "-c -n --class --classdata"),
    "timeout": _wrapper("--foreground --preserve-status -v", "-s -k --signal --kill-after", 1),
    "time": _wrapper("-p -v", "-f -o"),
    "stdbuf": _wrapper("", "-i -o -e --input --output --error"),
    "command": _wrapper("-p"),
    "builtin": _wrapper(),
    "exec": _wrapper("-c -l", "-a"),
}


def program_name(word: Word) -> str | None:
    """Return the program's name: `bash` for /usr/bin/bash, "$HOME"/bin/bash and ba'sh'.

    Removes the version from an interpreter's name. Returns None if the name depends on an expansion or slot.
    """
    if word.literal is None and "/" not in word.tail:
        return None
    name = word.tail.rpartition("/")[2]
    return (
        re.sub(r"[0-9.]+$", "", name)
        if name.startswith(("python", "perl", "ruby", "lua", "php", "tclsh"))
        else name
    )


def after_wrapper(wrapper: Wrapper, words: tuple[Word, ...]) -> tuple[Word, ...] | None:
    """Return the words of the wrapped command, or None if the wrapper has an option that is not listed."""
    index = 1
    while index < len(words) and (option := words[index].literal) is not None and option.startswith("-"):
        index += 1
        if option == "--":
            break
        if option in wrapper.with_value:
            index += 1
        elif (
            option not in wrapper.flags
            and option.partition("=")[0] not in wrapper.with_value
            and option[:2] not in wrapper.with_value
        ):
            return None
    while wrapper.takes_variables and index < len(words) and words[index].assigns:
        index += 1
    return words[index + wrapper.operands :]
