"""Tables of programs by how they use their arguments, and the detection of a command's program.

Owns the lists of shells, interpreters, evaluators, wrappers, programs that take plain data, and unsafe
variables. An evaluator passes text to a shell or runs it as a program, now or later, on this or another
machine. The lists cannot be complete: a program in none of them is reported to the author of the spec, who is
responsible for it, as for a call with an argument list. RS-65
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from easel.core.shell.lexer import Word


def _names(*lists: str) -> frozenset[str]:
    return frozenset(name for names in lists for name in names.split())


SHELLS = _names("sh bash dash ash zsh ksh ksh93 mksh pdksh yash fish csh tcsh rbash pwsh powershell cmd nu")
# Programs that run a script file; the arguments after the file are data.
INTERPRETERS = SHELLS | _names(
    "python perl ruby node nodejs deno bun php lua luajit tclsh wish expect osascript Rscript ghci jshell"
)
# The last component of a file that is an open file of the process: /dev/stdin, /proc/self/fd/3.
OPEN_FILE = re.compile(r"-|stdin|[0-9]+")
# Modules of `python -m` that run code from their arguments or their input.
EVALUATING_MODULES = _names("asyncio cProfile code IPython ipdb pdb profile runpy timeit trace")

# Programs whose arguments and standard input must not contain a value.
EVALUATING_PROGRAMS = _names(
    # They start a shell, here or on another machine.
    "ssh slogin rsh mosh scp sftp rsync su runuser script watch xargs parallel at batch crontab tmux screen",
    "ansible ansible-console pdsh clush entr socat",
    # They have a language of their own that can run commands.
    "awk gawk mawk nawk sed gsed make gmake ninja vi vim nvim ex ed emacs gdb lldb m4 dc ftp lftp gnuplot",
    "psql mysql mariadb sqlite sqlite3 duckdb mongosh mongo clickhouse-client sqlplus sqlcmd",
)
EVALUATORS = EVALUATING_PROGRAMS | _names(
    # Shell builtins: text becomes commands, arithmetic or the name of a variable.
    "eval . source trap alias unalias let exit return shift break continue read readarray mapfile getopts",
    "unset declare typeset local integer float set shopt enable bind complete compgen fc history hash",
)
# Programs that use their arguments and standard input as plain data, apart from RISKY_OPTIONS.
DATA_PROGRAMS = _names(
    # Shell builtins.
    ": [ cd command echo export false getopt jobs kill popd printf pushd pwd readonly test true type ulimit",
    "umask wait which whereis",
    # Files and text.
    "basename cat chgrp chmod chown cksum cmp column comm cp cut dd df diff dirname du expand expr file find",
    "fmt fold fgrep egrep grep ag rg fd head hexdump iconv install jq ln ls md5sum mkdir mktemp mv nl od",
    "paste readlink realpath rev rm rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred sort",
    "split stat strings tac tail tee touch tr tree truncate uniq wc xmllint base32 base64",
    # Archives.
    "7z bunzip2 bzip2 gunzip gzip tar unxz unzip unzstd xz zcat zip zstd",
    # The system and the network.
    "apt apt-cache apt-get brew date dig dnf dpkg free getent groups host hostname hostnamectl id ifconfig",
    "journalctl killall last logger loginctl lsblk lsof mount netstat nslookup nproc pacman pgrep ping pkill",
    "ps reboot service shutdown sleep snap ss sync systemctl timedatectl top tracepath traceroute umount",
    "uname uptime useradd userdel usermod who whoami yum apk curl wget nc ncat",
    # Databases, media, development.
    "createdb dropdb mysqldump pg_dump pg_isready pg_restore ffmpeg ffprobe pdftotext gh glab",
    "helm",
)
# Programs that pass the rest of their arguments to another program: a shell or an evaluator among their
# arguments is checked like a command.
LAUNCHERS = _names(
    "docker podman nerdctl buildah kubectl oc crictl ctr lxc incus machinectl distrobox toolbox flatpak",
    "git npm yarn pnpm bun deno go gcloud aws az heroku fly vercel terraform tofu vagrant",
)
# Programs that write every file that they name, programs that copy files, and programs that write none.
WRITING_PROGRAMS = _names("tee sponge dd")
COPYING_PROGRAMS = _names("cp mv ln install rsync scp")
READING_PROGRAMS = _names(
    "[ cat cd chmod chown cmp diff echo egrep export fgrep file grep head ls md5sum mkdir printf rg rm",
    "rmdir sha256sum stat tail test wc",
)
# Programs that run a file that is an argument or their standard input.
FILE_EVALUATORS = _names("eval . source") | (
    EVALUATING_PROGRAMS - _names("scp sftp rsync sed gsed awk gawk mawk nawk vi vim nvim emacs")
)
# Files that programs run without being given their names.
IMPLICIT_SCRIPTS = _names(
    "Makefile makefile GNUmakefile Dockerfile Containerfile Vagrantfile Jenkinsfile Rakefile justfile",
    ".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zprofile .zshenv .kshrc .envrc .vimrc",
    "authorized_keys crontab sitecustomize.py conftest.py",
)
# Folders whose files are run in the same way.
IMPLICIT_FOLDERS = _names(
    "cron.d cron.hourly cron.daily cron.weekly cron.monthly hooks init.d profile.d sudoers.d"
)
# Options whose value is run as a command, by every program that has them.
COMMAND_OPTION = re.compile(
    r"--(?:[a-z-]+-)?(?:command|cmd|exec|execute|eval|rsh|shell|hook|editor|pager|askpass)"
)
# The same for single programs.
RISKY_OPTIONS: Mapping[str, frozenset[str]] = {
    "git": _names("-c --config-env --upload-pack --receive-pack --exec -x --exec-path -O"),
    "split": _names("--filter"),
    "sort": _names("--compress-program"),
    "tar": _names(
        "-I -F --use-compress-program --to-command --checkpoint-action --rsh-command --info-script",
        "--new-volume-script",
    ),
    "zip": _names("-TT --unzip-command"),
    "curl": _names("-K --config"),
    "wget": _names("-e --execute"),
    "apt": _names("-o --option -c --config-file"),
    "apt-get": _names("-o --option -c --config-file"),
    "dpkg": _names("--pre-invoke --post-invoke"),
    "helm": _names("--post-renderer"),
    "go": _names("-exec -toolexec"),
    "npm": _names("-c --call"),
    "jobs": _names("-x"),
    "fd": _names("-x -X --exec --exec-batch"),
    "rg": _names("--pre"),
    "nc": _names("-e -c"),
    "ncat": _names("-e -c --sh-exec --lua-exec"),
}
# Subcommands that run the words after them as a command.
RISKY_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
    "git": _names("foreach run filter-branch"),
    "deno": _names("eval repl"),
    "aws": _names("send-command start-session"),
    "az": _names("run-command"),
    "heroku": _names("run run:detached"),
}
# Subcommands whose first operand is the program or script that they run; later operands are its arguments.
PROGRAM_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
    "deno": _names("run serve test"),
    "bun": _names("x run"),
    "go": _names("run tool"),
    "npm": _names("exec x"),
    "pnpm": _names("dlx exec"),
    "yarn": _names("dlx exec"),
}
# Programs that paste variables of the environment into the commands that they run.
ENVIRONMENT_EVALUATORS = _names("make gmake")
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
    "busybox": _wrapper(),
    "chroot": _wrapper("--skip-chdir", "--userspec --groups", 1),
    "flock": _wrapper("-n -x -e -s -u -o -F --nonblock --no-fork", "-w -E --timeout", 1),
    "npx": _wrapper("-y --yes -q --quiet --no-install", "-p --package"),
    "bunx": _wrapper(),
    "uvx": _wrapper("-q --quiet", "--from --with --python"),
    "systemd-run": _wrapper(
        "--user --scope --pty -t -q --quiet --wait --collect -G --pipe -P --no-block",
        "-u -p -E --unit --property --slice --uid --gid --working-directory --setenv --description",
    ),
}
# An option, or a variable in quotes, which the shell reads as an argument: env "A=1" sh.
_NOT_A_PROGRAM = re.compile(r"-|[A-Za-z_][A-Za-z0-9_]*=")
_SYSTEM_FOLDERS = re.compile(r"/(?:usr/(?:local/)?)?s?bin/[^/]*")


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
    inner = words[index + wrapper.operands :]
    is_program = not inner or not _NOT_A_PROGRAM.match(inner[0].literal or "")
    return inner if is_program else None


def is_own_script(word: Word) -> bool:
    """Return whether a command runs a program by its path, such as ./deploy, outside the system's folders."""
    return "/" in (word.literal or word.tail) and not _SYSTEM_FOLDERS.fullmatch(word.literal or "")


def file_name(word: Word) -> str | None:
    """Return the last component of the path that a word names, also in `--output=path`.

    Returns None if that component depends on an expansion or slot.
    """
    if word.literal is None and "/" not in word.tail:
        return None
    return word.tail.rpartition("=")[2].rstrip("/").rpartition("/")[2]


def folder_name(word: Word) -> str:
    """Return the component before the last one, or an empty text."""
    return word.tail.rstrip("/").rpartition("/")[0].rpartition("/")[2]
