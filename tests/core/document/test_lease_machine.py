"""A state machine over leases, patches and user actions: no write of an agent lands after the user acted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from easel.core.document.document import LineRange, revision_of
from easel.core.document.inspection import add_inspected, check_inspected
from easel.core.document.lease import TTL, Free, Held, Lease, check_out, preempt, release, renew, require
from easel.core.document.lines import count_lines
from easel.core.document.patch import apply_patch
from easel.errors import HostError, LeaseExpired, LockNotAvailable, LockNotOwned, PatchRejected, StaleEpoch
from easel.ids import RunId, SessionId
from tests.requirements import rule as cites
from tests.support.length import examples

RUNS = [RunId(f"run_{number}") for number in range(5)]


@dataclass
class Agent:
    """The knowledge of a run: its latest lease, and the text that it read with it."""

    lease_id: str = "lease_0_x_y"
    text: str | None = None
    interrupted: bool = False  # by the user, while it had a lease


class DocumentMachine(RuleBasedStateMachine):
    """One document as the store has it, three runs and a user. `holder` is the model of who may write."""

    @initialize()
    def start(self) -> None:
        self.now = datetime(2026, 11, 18, tzinfo=UTC)
        self.lease: Lease = Free(0)
        self.text = "one\ntwo\n"
        self.inspected: list[LineRange] = []
        self.agents = {run_id: Agent() for run_id in RUNS}
        self.holder: RunId | None = None
        self.holder_until = self.now
        self.epochs = [0]
        self.count = 0

    def is_holder(self, run_id: RunId) -> bool:
        return self.holder == run_id and self.now < self.holder_until

    @rule(run_id=st.sampled_from(RUNS))
    def check_out(self, run_id: RunId) -> None:
        agent = self.agents[run_id]
        self.count += 1
        is_taken = self.holder is not None and self.now < self.holder_until
        try:
            held = check_out(
                self.lease,
                run_id=run_id,
                session_id=SessionId("session"),
                now=self.now,
                randomness=f"{self.count}",
                is_interrupted=agent.interrupted,
            )
        except StaleEpoch:
            assert agent.interrupted
        except LockNotAvailable:
            assert is_taken
        else:
            assert not is_taken
            assert not agent.interrupted
            self.lease, self.inspected = held, []
            self.holder, self.holder_until = run_id, self.now + TTL
            agent.lease_id, agent.text = held.lease_id, None

    @rule(run_id=st.sampled_from(RUNS))
    def read(self, run_id: RunId) -> None:
        if (held := self.use_lease(run_id)) is not None:
            self.lease = renew(held, self.now)
            self.holder_until = self.now + TTL
            self.inspected = add_inspected(self.inspected, [(1, count_lines(self.text))])
            self.agents[run_id].text = self.text

    @rule(run_id=st.sampled_from(RUNS), line=st.integers(1, 3), with_base=st.booleans())
    def patch(self, run_id: RunId, line: int, with_base: bool) -> None:
        """Patch the first lines as the run last read them, in whatever state the document is by now."""
        agent = self.agents[run_id]
        known = agent.text if agent.text is not None else "one\ntwo\n"
        lines = known.split("\n")
        old = lines[min(line, len(lines)) - 1]
        self.count += 1
        patch = f"@@ -{line} +{line} @@\n-{old}\n+{run_id} {self.count}\n"
        before, was_holder = self.text, self.is_holder(run_id)
        held = self.use_lease(run_id)
        if held is None:
            return
        base = revision_of(known) if with_base else None
        try:
            applied = apply_patch(self.text, patch, revision_id=revision_of(self.text), base_revision_id=base)
            check_inspected(
                self.inspected,
                applied.old_ranges,
                line_count=count_lines(self.text),
                revision_id=revision_of(self.text),
            )
        except PatchRejected:
            assert self.text == before
        else:
            assert was_holder
            assert agent.text == before  # every write is of lines that were read at this revision
            self.text, self.inspected = applied.text, []
            agent.text = None

    def use_lease(self, run_id: RunId) -> Held | None:
        """Return the lease of the run, or None after the right error."""
        agent, refusal = self.agents[run_id], None
        try:
            held = require(self.lease, lease_id=agent.lease_id, run_id=run_id, now=self.now)
        except (StaleEpoch, LeaseExpired, LockNotOwned) as error:
            held, refusal = None, error
        assert (held is not None) == self.is_holder(run_id)
        if agent.interrupted:
            assert isinstance(refusal, StaleEpoch)
        return held

    @rule(run_id=st.sampled_from(RUNS))
    def check_in(self, run_id: RunId) -> None:
        if (held := self.use_lease(run_id)) is not None:
            self.lease, self.inspected, self.holder = release(held), [], None

    @rule(text=st.sampled_from([None, "one\ntwo\n", "mine\none\ntwo\n", ""]))
    def user_acts(self, text: str | None) -> None:
        """A message, a cancel (no text) or an edit."""
        if self.holder is not None and isinstance(self.lease, Held):
            self.agents[self.holder].interrupted = True
        self.lease, self.inspected, self.holder = preempt(self.lease), [], None
        self.text = self.text if text is None else text

    @rule(seconds=st.sampled_from([1, 14, 15, 40]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def epoch_never_falls(self) -> None:
        self.epochs.append(self.lease.epoch)
        assert self.epochs[-1] >= self.epochs[-2]

    @invariant()
    def at_most_one_run_can_write(self) -> None:
        holders = [run_id for run_id, agent in self.agents.items() if self.can_write(run_id, agent)]
        assert len(holders) <= 1
        assert not any(self.agents[run_id].interrupted for run_id in holders)

    def can_write(self, run_id: RunId, agent: Agent) -> bool:
        try:
            require(self.lease, lease_id=agent.lease_id, run_id=run_id, now=self.now)
        except HostError:
            return False
        return True


@cites("CT-08", "CT-10", "CT-13", "CT-19", "CT-32", "RS-47", "RS-48")
def test_no_write_lands_after_the_user_acted_and_no_two_runs_hold_the_document() -> None:
    run_state_machine_as_test(
        DocumentMachine,
        settings=settings(max_examples=examples(100), stateful_step_count=40, deadline=None),
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            WithoutEpochs,
            settings=settings(
                max_examples=300, stateful_step_count=40, deadline=None, report_multiple_bugs=False
            ),
        )


class WithoutEpochs(DocumentMachine):
    """The machine with a user action that forgets to end the lease: the invariants must find it."""

    @rule(text=st.sampled_from(["one\ntwo\n"]))
    def user_acts(self, text: str | None) -> None:
        if self.holder is not None:
            self.agents[self.holder].interrupted = True
        self.holder = None
