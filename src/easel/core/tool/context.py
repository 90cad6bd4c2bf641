"""For whom a tool is used, and where: an agent in its run, or whoever pressed a canvas's button. CV-03"""

from collections.abc import Callable
from dataclasses import dataclass, field

from easel.core.principal import Principal, PrincipalKind
from easel.core.run.run import Claim
from easel.core.session.session import key_of
from easel.errors import NotInRun
from easel.ids import CanvasId, UserId


@dataclass(frozen=True, slots=True)
class Watched:
    """The execution of a canvas's action whose watchers see what a tool says, named so that every instance can tell them."""

    canvas_id: CanvasId
    event_id: str
    action_id: str
    owner_id: str


@dataclass(frozen=True, slots=True)
class ToolContext:
    principal: Principal
    session_key: str  # in whose folder a tool works
    claim: Claim | None = (
        None  # of the run whose agent calls, by which all it changes there is fenced; None: nobody's run
    )
    on_output: Callable[[str], None] | None = field(
        default=None, compare=False
    )  # who wants to see what a tool says while it runs
    watched: Watched | None = field(
        default=None, compare=False
    )  # the same, for a tool that runs where they cannot be called

    @property
    def user_id(self) -> UserId:
        return self.principal.user_id

    @property
    def run(self) -> Claim:
        """For tools that work on a run's own things."""
        if self.claim is None:
            raise NotInRun
        return self.claim

    @classmethod
    def of_run(cls, claim: Claim) -> "ToolContext":
        return cls(
            Principal(claim.user_id, "agent", kind=PrincipalKind.AGENT), key_of(claim.session_id), claim
        )
