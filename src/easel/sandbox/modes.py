"""Which sandbox is in force here: what was asked for, or what a probe finds; never silently a weaker one. SB-14, RS-61

Owns the choice and the sentence that says it. How approvals work is not asked here, and nothing here changes them. SB-01
"""

from dataclasses import dataclass

from easel.errors import BadSettings
from easel.sandbox import bubblewrap, logical
from easel.sandbox.bubblewrap import Bubblewrap
from easel.sandbox.command import Shell
from easel.sandbox.limits import CommandLimits
from easel.sandbox.logical import Logical

MODES = ("logical", "bwrap", "nsjail", "container")
NOT_BUILT = ("nsjail", "container")
SANDBOX_UID = 64_321  # whom commands are on a host where Easel is root: nobody else's number, and one that containers map

WITHOUT_BASH = "The file tools work without it. See docs/guide/sandbox.md; EASEL_SANDBOX_MODE=logical runs commands without isolation."


@dataclass(frozen=True, slots=True)
class Choice:
    """`launcher` is None where commands cannot be run, and `says` why and what to do."""

    launcher: Bubblewrap | Logical | None
    says: str

    @property
    def mode(self) -> str | None:
        return None if self.launcher is None else self.launcher.name

    @property
    def owner(self) -> int | None:
        """Whom the folders of sessions have to belong to; None: whoever we are."""
        return self.launcher.uid if isinstance(self.launcher, Bubblewrap) else None

    def shell(self, limits: CommandLimits) -> Shell | None:
        return None if self.launcher is None else Shell(self.launcher, limits)


def choose(mode: str, *, uid: int = SANDBOX_UID, bash: str = "auto", is_prod: bool = False) -> Choice:
    """Tries what it chooses. A mode that was asked for and does not work here is an error at start; "" leaves it to the probe.

    `bash` is `auto`, `on` or `off`. In production nothing runs commands unless it is `on`, and then only isolated. SB-11
    """
    if mode and mode not in MODES:
        raise BadSettings(
            problem=f"EASEL_SANDBOX_MODE is {mode!r}; it is {', '.join(MODES[:-1])} or {MODES[-1]}."
        )
    if mode in NOT_BUILT:
        raise BadSettings(
            problem=f"EASEL_SANDBOX_MODE={mode} is not available in this version; there are `bwrap` and `logical`."
        )
    if is_prod and bash == "on" and mode == "logical":
        raise BadSettings(
            problem="EASEL_SANDBOX_MODE=logical isolates nothing, so EASEL_BASH=on is refused with EASEL_PROFILE=prod."
        )
    found = logical.find() if mode == "logical" else bubblewrap.find(uid)
    if isinstance(found, str) and mode:
        raise BadSettings(problem=f"EASEL_SANDBOX_MODE={mode} cannot be used: {found}.")
    if bash == "off":
        return Choice(None, "off (EASEL_BASH=off).")
    if is_prod and bash != "on":
        return Choice(None, "off with EASEL_PROFILE=prod; EASEL_BASH=on turns it on, isolated.")
    if not isinstance(found, str):
        isolation = (
            "isolated by bubblewrap"
            if isinstance(found, Bubblewrap)
            else "WITHOUT isolation (EASEL_SANDBOX_MODE=logical)"
        )
        return Choice(found, f"on, {isolation}.")
    return Choice(None, f"off: {found}. {WITHOUT_BASH}")
