"""A folder in which a value could do harm, with programs that run what the real ones would run.

Owns the prepared files, the fakes, and the driver of many commands in one start of the sandbox. Harm is
a file PWN in the folder of a command.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.sandbox.conftest import Machine

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"

# Run what follows the options (and that many operands), as launchers do; a text of code as a shell would.
_LAUNCH = """#!/bin/bash
n=%d
while [ $# -gt 0 ]; do
  case "$1" in
    %s) shift 2 2>/dev/null || exit 1;;
    --) shift; break;;
    -*|exec|run|compose|dlx) shift;;
    *=*) export "$1"; shift;;
    *) [ $n -gt 0 ] || break; n=$((n - 1)); shift; [ "$1" = -- ] && { shift; break; };;
  esac
done
exec "$@"
"""
# Code of a language that is not installed: what is outside of its quotes would run.
_CODE = """#!/bin/bash
last=""
for a; do
  case "$last" in -e|-c|-r|-ex|runner|eval) code="$a";; esac
  case "$a" in --execute=*|--eval=*|--args=*) code="${a#*=}";; esac
  last="$a"
done
rest=$(printf %s "$code" | sed "s/'[^']*'//g; s/\\"[^\\"]*\\"//g")
case "$rest" in *evil*|*touch*|*env*|*repo*|*EASEL*) touch PWN;; esac
"""
_PASTE = '#!/bin/bash\nsh -c "echo $*" </dev/null\n'  # a recipe that pastes its arguments into a command
_JOIN = '#!/bin/bash\nshift\n[ $# -gt 0 ] && exec sh -c "$*"\nexec sh\n'
_NONE = '#!/bin/bash\nprintf "%s\\0" "${0##*/}" "$@" >> "$LOG"\n'
_QUIET = """npm pip cargo java 7z ffmpeg convert pdflatex nc dig systemctl journalctl mail psql mysql pg_dump
    terraform helm aws gcloud mosquitto_pub ping nmap scp rsync curl wget node git-push"""
_VALUED = "-u|-e|-w|-p|-n|-t|-E|-o|-C"
FAKES: Mapping[str, str] = {
    **dict.fromkeys(("docker", "podman", "kubectl"), _LAUNCH % (1, "-u|-e|-v|-w|-n")),
    **dict.fromkeys(
        ("sudo", "strace", "ltrace", "unshare", "nsenter", "runuser", "systemd-run", "npx", "uv"),
        (_LAUNCH % (0, _VALUED)),
    ),
    **dict.fromkeys(("bundle",), _LAUNCH % (0, "-x")),
    **dict.fromkeys(("rails", "ruby", "php", "redis-cli", "osascript", "expect", "yq"), _CODE),
    **dict.fromkeys(("just", "task", "rake", "ant", "mvn", "gradle", "ansible-playbook", "fab"), _PASTE),
    "ssh": _JOIN,
    **dict.fromkeys(_QUIET.split(), _NONE),
}
_EVIL = "#!/bin/sh\ntouch PWN\n.shell touch PWN\n"
FILES: Mapping[str, str] = {
    "evil": _EVIL,
    "x/evil": _EVIL,
    "install.sh": "#!/bin/sh\n:\n",
    "run.sh": 'echo "$x"\n',
    "deploy": "#!/bin/sh\n:\n",
    "evil.py": "open('PWN', 'w')\n",
    "evil.vim": "!touch PWN\n",
    "manage.py": "import sys\n",
    "app.py": "",
    "bin/rails": _CODE,
    "data.json": '[{"id": "evil", "n": 1}]',
    "log": "evil\n",
    "file": "x\n",
    "f": "x\n",
    "repo/Makefile": "all:\n\ttouch PWN\n",
    "repo/.git/HEAD": "ref: refs/heads/main\n",
    "repo/.git/config": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch PWN\n",
    "repo/.git/objects/x": "",
    "repo/.git/refs/heads/x": "",
}

_DRIVER = """
FAKES=$PWD/fakes; cd cases; LOG=$PWD/log; export LOG FAKES
run() {
  mkdir "w$1" && cp -r ../base/. "w$1" && cd "w$1" || return
  bash "../$1" </dev/null >"../$1.out" 2>&1
  echo "$?" > "../$1.rc"
  [ -e PWN ] || [ -e x/PWN ] || [ -e repo/PWN ] && echo "PWN $1"
  cd ..
}
export -f run
ls | grep '^[0-9]*$' | xargs -P 2 -n 1 bash -c 'run "$1"' _
"""


def load(name: str) -> list[Any]:
    """Return a shared fixture; without the shared folder the test is skipped."""
    path = FIXTURES / name
    if not path.exists():
        pytest.skip(f"the shared fixtures are not beside this clone: {path}")
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["values"] if isinstance(found, dict) else found


def prepare(folder: Path, fakes: Mapping[str, str], files: Mapping[str, str]) -> None:
    fakes = {f"fakes/{program}": text for program, text in fakes.items()}
    for name, text in {**{f"base/{name}": text for name, text in files.items()}, **fakes}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


Run = tuple[str, "Mapping[str, str]"]  # a command and its variables


async def run_all(machine: Machine, groups: Sequence[Sequence[Run]]) -> list[int]:
    """Run each group in a folder of its own. Returns the numbers of the groups that did harm."""
    folder = machine.folder() / "cases"
    folder.mkdir()
    for number, group in enumerate(groups):
        lines = ['export PATH="$FAKES:$PATH"']
        for command, variables in group:
            exports = [f"export {name}={shlex.quote(value)}; " for name, value in variables.items()]
            lines.append(f"({''.join(exports)}exec timeout 9 bash -c {shlex.quote(command)})")
        (folder / str(number)).write_text("\n".join(lines), encoding="utf-8", errors="surrogateescape")
    result = await machine.bash(_DRIVER, timeout=280_000)
    assert "stopped" not in result, result
    return sorted(int(line.split()[1]) for line in result["output"].splitlines() if line.startswith("PWN "))
