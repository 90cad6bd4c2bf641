"""The sandbox mode of this process. SB-14, RS-61

Owns the choice of the mode and its description. A mode that is set is used or fails; without one, bubblewrap
is used if its probe succeeds. There is no fallback to a weaker mode. Approvals are decided elsewhere. SB-01
"""

from dataclasses import dataclass

from easel.errors import BadSettings
from easel.sandbox import bubblewrap, logical
from easel.sandbox.bubblewrap import Bubblewrap
from easel.sandbox.command import Shell
from easel.sandbox.limits import CommandLimits
from easel.sandbox.logical import Logical

MODES = ("logical", "bwrap", "nsjail", "container")
NOT_IMPLEMENTED = ("nsjail", "container")
# The uid of commands where Easel runs as root. No other program uses it, and containers map it.
SANDBOX_UID = 64_321

WITHOUT_BASH = (
    "The file tools work without it. See docs/guide/sandbox.md; "
    "EASEL_SANDBOX_MODE=logical runs commands without isolation."
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen launcher, None if commands cannot run. `description` then gives the reason and a remedy."""

    launcher: Bubblewrap | Logical | None
    description: str

    @property
    def mode(self) -> str | None:
        return None if self.launcher is None else self.launcher.name

    @property
    def owner(self) -> int | None:
        """The uid that must own the folders of sessions; None: the uid of this process."""
        return self.launcher.uid if isinstance(self.launcher, Bubblewrap) else None

    def shell(self, limits: CommandLimits) -> Shell | None:
        return None if self.launcher is None else Shell(self.launcher, limits)


def choose(mode: str, *, uid: int = SANDBOX_UID, bash: str = "auto", is_prod: bool = False) -> Choice:
    """Choose the sandbox mode and probe it. Raises `BadSettings` if `mode` is invalid or does not work.

    `bash` is `auto`, `on` or `off`. In production, commands run only with `on` and isolated. SB-11
    """
    if mode and mode not in MODES:
        raise BadSettings(
            problem=f"EASEL_SANDBOX_MODE is {mode!r}; it must be {', '.join(MODES[:-1])} or {MODES[-1]}."
        )
    if mode in NOT_IMPLEMENTED:
        raise BadSettings(
            problem=f"EASEL_SANDBOX_MODE={mode} is not available in this version; use `bwrap` or `logical`."
        )
    if is_prod and bash == "on" and mode == "logical":
        raise BadSettings(
            problem="EASEL_SANDBOX_MODE=logical isolates nothing; it must not be used with EASEL_BASH=on and "
            "EASEL_PROFILE=prod."
        )
    launcher = logical.probe() if mode == "logical" else bubblewrap.probe(uid)
    if isinstance(launcher, str) and mode:
        raise BadSettings(problem=f"EASEL_SANDBOX_MODE={mode} cannot be used: {launcher}.")
    if bash == "off":
        return Choice(None, "off (EASEL_BASH=off).")
    if is_prod and bash != "on":
        return Choice(None, "off with EASEL_PROFILE=prod; EASEL_BASH=on turns it on, isolated.")
    if isinstance(launcher, str):
        return Choice(None, f"off: {launcher}. {WITHOUT_BASH}")
    if isinstance(launcher, Bubblewrap):
        return Choice(launcher, "on, isolated by bubblewrap.")
    return Choice(launcher, "on, WITHOUT isolation (EASEL_SANDBOX_MODE=logical).")
