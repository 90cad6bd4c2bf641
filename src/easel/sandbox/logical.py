"""Start a command without isolation: with limits, in its folder, as the user of Easel. Its environment is
`PATH` and the secrets of its action.

The command can read and write every file that this user can, and use the network. So this mode is used only
if EASEL_SANDBOX_MODE names it. `reaper.py` kills the processes that the command leaves behind, and all its
processes when Easel ends.
"""

import os
import shutil
import sys
from collections.abc import Mapping
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
        env: Mapping[str, str],
    ) -> Launch:
        root, relative = workspace.find(cwd)
        reaper_end, lifeline = os.pipe()
        # PATH is an argument of the reaper: Python may add variables to the environment of its own process.
        argv = [sys.executable, "-I", "-S", str(REAPER), str(reaper_end), f"PATH={PATH}"]
        argv += list(env)  # names only: other users can read the arguments of a process
        argv += ["/bin/sh", "-c", OOM_SCRIPT, "sh", self.bash, "--noprofile", "--norc", "-c"]
        # No kernel limit on processes: the kernel would count all processes of this user. The watch counts
        # those of the command.
        argv += [limit_script(limits, processes=False), "bash", command]
        return Launch(argv, [reaper_end], cwd=str(root.folder / relative), lifeline=lifeline, env=env)


def probe() -> Logical | str:
    """Return the launcher, or the reason why commands cannot be started."""
    bash = shutil.which("bash")
    if bash is None:
        return "bash is not installed"
    if not os.access(sys.executable, os.X_OK):  # needed to run the reaper
        return f"{sys.executable or 'python'} may not be started by this user"
    return Logical(bash)
