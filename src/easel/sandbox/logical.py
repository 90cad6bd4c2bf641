"""How a command is started with no isolation at all: in its folder, with an empty environment and limits, as whoever Easel is.

Its environment has one word more than under bubblewrap, by which what it leaves behind is found and ended. Only where the user's setting says so. It can read and write whatever Easel's own user can, and reach the network.
"""

import shutil
from dataclasses import dataclass
from uuid import uuid4

from easel.sandbox.bubblewrap import FIRST, Launch, limited
from easel.sandbox.limits import Limits
from easel.sandbox.places import Place


@dataclass(frozen=True, slots=True)
class Logical:
    bash: str

    name = "logical"

    def launch(self, command: str, place: Place, cwd: str, limits: Limits, *, network: bool) -> Launch:  # noqa: ARG002 - it has one anyway
        root, way = place.find(cwd)
        # No limit on processes: the kernel would count all that this user runs. The watch adds up what this command started.
        argv = ["/bin/sh", "-c", FIRST, "sh", self.bash, "--noprofile", "--norc", "-c", limited(limits, processes=False), "bash", command]
        return Launch(argv, cwd=str(root.folder / way), mark=uuid4().hex)


def find() -> Logical | str:
    bash = shutil.which("bash")
    return Logical(bash) if bash else "bash is not installed"
