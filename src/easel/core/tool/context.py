"""The context of a tool call: the caller is an agent in its run, or the user of a canvas action. CV-03"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from easel.core.principal import Principal
from easel.core.run.run import Claim
from easel.core.session.session import to_session_key
from easel.core.values.references import SecretUse
from easel.errors import NotInRun
from easel.ids import AccountId, CanvasId


@dataclass(frozen=True, slots=True)
class Watched:
    """Identifies the execution whose live output is logged, so that any instance can append to the log."""

    canvas_id: CanvasId
    event_id: str
    action_id: str
    owner_id: str


@dataclass(frozen=True, slots=True)
class UsedSecrets:
    """The names of the secrets of a call: at places of its arguments, and as variables of its command.

    `texts` are further variables, with their values. RS-71
    """

    args: tuple[SecretUse, ...] = ()
    env: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*(use.name for use in self.args), *self.env))

    def to_stored(self) -> dict[str, Any]:
        """Return the JSON for a confirmation or for a call to another instance."""
        uses = [{"path": list(use.path), "name": use.name} for use in self.args]
        stored = {"secrets": uses, "env": list(self.env), "texts": dict(self.texts)}
        return {name: value for name, value in stored.items() if value}

    def __bool__(self) -> bool:
        return bool(self.args or self.env or self.texts)

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> "UsedSecrets":
        uses = (SecretUse(tuple(use["path"]), use["name"]) for use in stored.get("secrets", ()))
        return cls(tuple(uses), tuple(stored.get("env", ())), tuple(stored.get("texts", {}).items()))


NO_SECRETS = UsedSecrets()


@dataclass(frozen=True, slots=True)
class ToolContext:
    principal: Principal
    session_key: str  # the session whose folder the tool works in
    claim: Claim | None = None  # of the run whose agent calls; fences the tool's writes. None: outside a run
    on_output: Callable[[str], object] | None = field(default=None, compare=False)
    # The canvas whose action calls, while no person has accepted it: the tool may read only its logs. RS-63
    unaccepted_canvas: CanvasId | None = None
    watched: Watched | None = field(default=None, compare=False)  # replaces `on_output` on other instances
    # Collects the audit details of commands instead of recording each one: a refresh job is tallied. RS-69
    commands: list[Mapping[str, Any]] | None = field(default=None, compare=False)
    # The hosts that a fetch of a canvas may reach: none before a person accepts it. None: of a setting. RS-74
    hosts: frozenset[str] | None = None
    secrets: UsedSecrets = NO_SECRETS  # names; the instance that runs the tool resolves them. RS-66
    # The variables of the tool's command, with the values of secrets; set just before the tool is called.
    env: Mapping[str, str] | None = field(default=None, compare=False, repr=False)

    @property
    def account_id(self) -> AccountId:
        return self.principal.account_id

    @property
    def run(self) -> Claim:
        """Return the claim of the run. Raises `NotInRun` outside a run."""
        if self.claim is None:
            raise NotInRun
        return self.claim

    @classmethod
    def of_run(cls, claim: Claim) -> "ToolContext":
        return cls(claim.agent, to_session_key(claim.session_id), claim)
