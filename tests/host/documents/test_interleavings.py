"""Any order of user and agent actions on two instances: the user always wins, and there is one holder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from easel.core.document.document import revision_of
from easel.errors import RunFinished
from tests import requirements
from tests.host.documents.harness import Instance, open_instances, unique
from tests.stores.harness import ending_batch
from tests.support.length import examples
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from pathlib import Path

    from easel.core.run.run import Claim

EXAMPLES = {"sqlite": examples(60), "postgres": examples(15)}
STEPS = 30
AGENTS = st.integers(0, 2)
PLACES = st.integers(0, 1)  # the instance that an action reaches


@dataclass(eq=False)
class Agent:
    """The newest run of one session, as the model sees it."""

    session: str
    claim: Claim
    lease_id: str | None = None
    is_interrupted: bool = False
    patch: asyncio.Task[dict[str, Any]] | None = None  # a patch that was computed and is not stored yet
    patched: str = ""
    patch_lease_id: str | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class LeaseMachine(RuleBasedStateMachine):
    """Runs each action on one of two instances, and compares text, holder and interruptions with a model."""

    instances: list[Instance]

    def wait(self, operation: Awaitable[Any]) -> Any:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.canvas_id = self.wait(self.instances[0].create("line 0\n"))
        self.text = "line 0\n"
        self.count = 0
        self.epoch = 0
        self.holder: Agent | None = None
        self.agents = [self.wait(self._start_agent(unique("s"))) for _ in range(3)]
        for place in self.instances:
            self._gate_writes(place)

    async def _start_agent(self, session: str) -> Agent:
        return Agent(session, await self.instances[0].start(session))

    def _gate_writes(self, instance: Instance) -> None:
        """Let the patch of an agent wait at its gate after it was computed, before it is stored."""
        apply = type(instance.transactions).apply
        agents = self.agents

        async def gated(account_id: Any, canvas_id: Any, decide: Any, **more: Any) -> Any:
            claim = more.get("claim")
            for agent in agents:
                if claim is agent.claim and asyncio.current_task() is agent.patch:
                    agent.arrived.set()
                    await agent.gate.wait()
            return await apply(instance.transactions, account_id, canvas_id, decide, **more)

        instance.transactions.apply = gated

    def _new_text(self) -> str:
        self.count += 1
        return f"line {self.count}\n"

    def _interrupt(self, agent: Agent | None) -> None:
        if agent is not None:
            agent.is_interrupted = True
            if self.holder is agent:
                self.holder = None

    # -- the user --------------------------------------------------------------------------------------------

    @rule(number=AGENTS, place=PLACES)
    def send_message(self, number: int, place: int) -> None:
        agent = self.agents[number]
        self.wait(self.instances[place].queue.start(THE_OWNER, agent.session, "another message"))
        self._interrupt(agent)

    @rule(number=AGENTS, place=PLACES)
    def cancel_run(self, number: int, place: int) -> None:
        agent = self.agents[number]
        try:
            self.wait(self.instances[place].queue.cancel(THE_OWNER, agent.claim.run_id))
        except RunFinished:
            return
        self._interrupt(agent)

    @rule(place=PLACES)
    def write(self, place: int) -> None:
        self.text = self._new_text()
        saved = self.wait(self.instances[place].documents.put(THE_OWNER, self.canvas_id, self.text, None))
        assert saved.lease.epoch == self.epoch + 1
        self._interrupt(self.holder)

    @rule(place=PLACES)
    def take_control(self, place: int) -> None:
        self.wait(self.instances[place].documents.take_control(THE_OWNER, self.canvas_id))
        self._interrupt(self.holder)

    # -- agents ----------------------------------------------------------------------------------------------

    @rule(number=AGENTS, place=PLACES)
    def check_out(self, number: int, place: int) -> None:
        agent = self.agents[number]
        answer = self.wait(self.instances[place].call(agent.claim, "check_out", canvas_id=self.canvas_id))
        if agent.is_interrupted:
            assert answer["code"] == "STALE_EPOCH"
        elif self.holder is not None:
            assert answer["code"] == "LOCK_NOT_AVAILABLE"
        else:
            assert answer["ok"], answer
            agent.lease_id, self.holder = answer["lease_id"], agent

    @precondition(lambda self: any(agent.lease_id for agent in self.agents))
    @rule(number=AGENTS, place=PLACES, tool=st.sampled_from(["read_all", "renew_lease", "check_in"]))
    def use_lease(self, number: int, place: int, tool: str) -> None:
        agent = self.agents[number]
        if agent.lease_id is None:
            return
        answer = self.wait(self.instances[place].call(agent.claim, tool, lease_id=agent.lease_id))
        is_holder = self.holder is agent
        assert answer["revision_id"] == revision_of(self.text)
        if tool == "check_in":
            assert answer["released"] is is_holder
            if is_holder:
                self.holder = None
        else:
            assert answer["ok"] is is_holder, answer

    @precondition(lambda self: self.holder is not None and self.holder.patch is None)
    @rule(place=PLACES)
    def begin_patch(self, place: int) -> None:
        """Let the holder compute a patch, and pause before it is stored."""
        agent = self.holder
        assert agent is not None
        instance = self.instances[place]
        assert self.wait(instance.call(agent.claim, "read_all", lease_id=agent.lease_id))["ok"]
        agent.patched, agent.patch_lease_id = self._new_text(), agent.lease_id
        patch = f"@@ -1 +1 @@\n-{self.text}+{agent.patched}"
        agent.gate, agent.arrived = asyncio.Event(), asyncio.Event()

        async def begin() -> None:
            agent.patch = asyncio.ensure_future(
                instance.call(agent.claim, "apply_patch", lease_id=agent.lease_id, patch=patch)
            )
            async with asyncio.timeout(60):
                await agent.arrived.wait()

        self.wait(begin())

    @rule(number=AGENTS)
    def finish_patch(self, number: int) -> None:
        agent = self.agents[number]
        if agent.patch is None:
            return
        agent.gate.set()
        answer = self.wait(agent.patch)
        agent.patch = None
        has_lease = self.holder is agent and agent.lease_id == agent.patch_lease_id
        assert answer["ok"] is has_lease, answer
        if has_lease:
            assert answer["new_revision_id"] == revision_of(agent.patched)
            self.text = agent.patched
        elif agent.is_interrupted:
            assert answer["code"] == "STALE_EPOCH", answer
        else:
            assert answer["code"] in ("LEASE_EXPIRED", "STALE_EPOCH"), answer

    @precondition(lambda self: self.holder is not None)
    @rule(place=PLACES, is_noticed=st.booleans())
    def expire(self, place: int, is_noticed: bool) -> None:
        self.wait(self.instances[place].expire(self.canvas_id))
        if is_noticed:
            self.wait(self.instances[place].leases.release_expired())
        self.holder = None

    @rule(number=AGENTS, place=PLACES)
    def end_run(self, number: int, place: int) -> None:
        """End the run of an agent; the next run of its session begins."""
        agent = self.agents[number]
        if agent.patch is not None:
            self.finish_patch(number)
        instance = self.instances[place]
        if agent.lease_id is not None and self.holder is agent:
            self.wait(self._release_everywhere(agent))
            self.holder = None
        self.wait(instance.database.runs.append(ending_batch(agent.claim, 1)))
        self.agents[number] = self.wait(self._start_next(instance, agent.session))

    async def _release_everywhere(self, agent: Agent) -> None:
        for instance in self.instances:
            await instance.leases.release(agent.claim)

    async def _start_next(self, instance: Instance, session: str) -> Agent:
        """Cancel what is queued in the session, and start another run."""
        queued = await instance.queue.list_runs(THE_OWNER, session, [], None, 100)
        for run in queued:
            if not run.is_terminal:
                await instance.queue.cancel(THE_OWNER, run.run_id)
        return await self._start_agent(session)

    # -- always ----------------------------------------------------------------------------------------------

    @invariant()
    def both_instances_agree_with_the_model(self) -> None:
        for instance in self.instances:
            document = self.wait(instance.get(self.canvas_id))
            held = document.live_lease
            assert document.text == self.text
            assert (held and held.run_id) == (self.holder and self.holder.claim.run_id)
            assert document.lease.epoch >= self.epoch
            self.epoch = document.lease.epoch

    def teardown(self) -> None:
        for number, agent in enumerate(getattr(self, "agents", [])):
            if agent.patch is not None:
                self.finish_patch(number)


@pytest.fixture
def machine(database_url: str, tmp_path: Path) -> Iterator[type[LeaseMachine]]:
    """Return the machine on two open instances, with its own event loop."""
    with asyncio.Runner() as runner:
        opening = open_instances(database_url, tmp_path)
        opened = runner.run(opening.__aenter__())

        class Machine(LeaseMachine):
            instances = opened

            def wait(self, operation: Awaitable[Any]) -> Any:
                async def answer() -> Any:
                    return await asyncio.wait_for(operation, 60)

                return runner.run(answer())

        yield Machine
        runner.run(opening.__aexit__(None, None, None))


@requirements.rule("CT-08", "CT-10", "CT-18", "CT-19", "CT-36", "RS-49")
def test_no_order_of_actions_lets_an_agent_write_after_the_user_acted(
    database_url: str, machine: type[LeaseMachine]
):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES["postgres" if database_url else "sqlite"],
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
