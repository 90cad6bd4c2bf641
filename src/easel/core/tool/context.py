"""For whom a tool is used: the run whose agent called it, and the claim by which everything it changes there is fenced."""

from dataclasses import dataclass

from easel.core.run.run import Claim
from easel.ids import RunId, UserId


@dataclass(frozen=True, slots=True)
class RunContext:
    claim: Claim

    @property
    def run_id(self) -> RunId:
        return self.claim.run_id

    @property
    def user_id(self) -> UserId:
        return self.claim.user_id
