"""How a command is started with no isolation at all: in its folder, with an empty environment and limits, as whoever Easel is.

A keeper (`keeper.py`) ends what it leaves behind, and all of it when Easel dies. Its environment has one word more than under
bubblewrap, by which that is found should the keeper itself be gone. Only where the user's setting says so: it can read and write whatever
Easel's own user can, and reach the network.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from easel.sandbox.bubblewrap import FIRST, MARK, PATH, Launch, limited
from easel.sandbox.limits import CommandLimits
from easel.sandbox.workspace import Workspace

KEEPER = Path(__file__).with_name("keeper.py")


@dataclass(frozen=True, slots=True)
class Logical:
    bash: str

    name = "logical"

    def launch(
        self,
        command: str,
        place: Workspace,
        cwd: str,
        limits: CommandLimits,
        *,
        network: bool,  # noqa: ARG002 - without isolation the host's network is always reachable
    ) -> Launch:
        root, way = place.find(cwd)
        kept, lifeline = os.pipe()
        mark = uuid4().hex
        # All of its environment said here: Python itself may add to its own.
        argv = [
            sys.executable,
            "-I",
            "-S",
            str(KEEPER),
            str(kept),
            f"PATH={PATH}",
            f"{MARK}={mark}",
            "/bin/sh",
            "-c",
            FIRST,
            "sh",
        ]
        # No limit on processes: the kernel would count all that this user runs. The watch adds up what this command started.
        argv += [self.bash, "--noprofile", "--norc", "-c", limited(limits, processes=False), "bash", command]
        return Launch(argv, [kept], cwd=str(root.folder / way), mark=mark, lifeline=lifeline)


def find() -> Logical | str:
    bash = shutil.which("bash")
    if bash is None:
        return "bash is not installed"
    if not os.access(sys.executable, os.X_OK):  # for the keeper
        return f"{sys.executable or 'python'} may not be started by this user"
    return Logical(bash)
