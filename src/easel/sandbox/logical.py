"""Start a command without isolation: in its folder, with an empty environment and limits, as this user.

`reaper.py` ends the processes that the command leaves behind, and all of them when Easel ends. Used only
where the setting names this mode: the command can read and write whatever this user can, and use the network.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from easel.sandbox.bubblewrap import OOM_SCRIPT, PATH, Launch, limit_script
from easel.sandbox.limits import CommandLimits
from easel.sandbox.workspace import Workspace

REAPER = Path(__file__).with_name("reaper.py")


@dataclass(frozen=True, slots=True)
class Logical:
    bash: str

    name = "logical"

    def launch(
        self,
        command: str,
        workspace: Workspace,
        cwd: str,
        limits: CommandLimits,
        *,
        network: bool,  # noqa: ARG002 - without isolation the host's network is always reachable
    ) -> Launch:
        root, relative = workspace.find(cwd)
        reaper_end, lifeline = os.pipe()
        # The environment is an argument, since Python may add variables to its own.
        argv = [sys.executable, "-I", "-S", str(REAPER), str(reaper_end), f"PATH={PATH}"]
        argv += ["/bin/sh", "-c", OOM_SCRIPT, "sh", self.bash, "--noprofile", "--norc", "-c"]
        # No kernel limit on processes: it would count all processes of this user. The watch counts the
        # command's own.
        argv += [limit_script(limits, processes=False), "bash", command]
        return Launch(argv, [reaper_end], cwd=str(root.folder / relative), lifeline=lifeline)


def probe() -> Logical | str:
    """Return the launcher, or the reason why commands cannot be started."""
    bash = shutil.which("bash")
    if bash is None:
        return "bash is not installed"
    if not os.access(sys.executable, os.X_OK):  # it runs the reaper
        return f"{sys.executable or 'python'} may not be started by this user"
    return Logical(bash)
