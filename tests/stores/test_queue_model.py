"""Every store against the model: both give the same answers for any sequence of operations."""

from __future__ import annotations

import asyncio
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

from easel.core.run.batch import Batch, QueueDepth
from easel.core.run.status import Status, is_terminal
from easel.core.stream.log import Bounds
from easel.errors import IdempotencyConflict
from easel.ids import OWNER, MessageId, SessionId
from tests import requirements
from tests.stores.harness import (
    CLAIM_SECONDS,
    TIMEOUT_SECONDS,
    A,
    B,
    Store,
    closing_events,
    decode_payload,
    new_run,
    open_migrated_store,
    run_events,
)
from tests.stores.queue_model import ModelClaim, ModelQueue, ModelRun
from tests.support.length import examples

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from easel.core.run.run import Claim
    from easel.core.stream.log import LoggedEvent
    from easel.ids import WorkerId

EXAMPLES = {"sqlite": examples(40), "postgres": examples(15)}
STEPS = 50

WORKERS = st.sampled_from([A, B])
SESSIONS = st.sampled_from(["s1", "s2", "s3"])
ENDS = st.sampled_from([None, None, None, Status.COMPLETED, Status.FAILED, Status.CANCELLED])


class QueueMachine(RuleBasedStateMachine):
    """Runs each operation on the store and on the model, and compares."""

    store: Store
    wait: Callable[[Awaitable[Any]], Any]

    def __init__(self) -> None:
        super().__init__()
        self.model = ModelQueue()
        self.claims: list[Claim] = []
        self.events = 0

    @initialize()
    def begin(self) -> None:
        self.wait(self.store.empty())

    def pick_claim(self, data: st.DataObject) -> Claim:
        """Draw a claim, mostly a valid or recently expired one."""
        newest = [claim for claim in self.claims if self.model.is_newest(_model_claim(claim))]
        return data.draw(st.sampled_from(newest * 3 + self.claims[-4:]))

    # -- operations

    @rule(
        session=SESSIONS,
        key=st.sampled_from([None, None, None, "k1", "k2"]),
        digest=st.sampled_from(["d1", "d2"]),
    )
    def enqueue(self, session: str, key: str | None, digest: str) -> None:
        new = new_run(session, key=key, digest=digest)
        expected = self.model.enqueue(ModelRun(new.run_id, session, new.max_attempts, key, digest))
        try:
            enqueued = self.wait(self.store.runs.enqueue(new))
        except IdempotencyConflict:
            assert expected is None
        else:
            assert (enqueued.run.run_id, enqueued.is_new) == (expected, expected == new.run_id)

    @precondition(lambda self: any(run.is_ready for run in self.model.runs.values()))
    @rule(worker=WORKERS, capacity=st.sampled_from([3, 1, 2, 0]), data=st.data())
    def claim(self, worker: WorkerId, capacity: int, data: st.DataObject) -> None:
        after = data.draw(st.sampled_from([None, None, None, *self.claims[-1:]]))
        expected = self.model.claim(worker, capacity, after.run_id if after else None)
        claims: list[Claim] = self.wait(
            self.store.runs.claim_queued(worker, capacity, CLAIM_SECONDS, after.turn_no if after else 0)
        )
        assert [_model_claim(claim) for claim in claims] == expected
        self.check_claims(claims)

    @precondition(lambda self: any(run.expired_at is not None for run in self.model.runs.values()))
    @rule(worker=WORKERS, capacity=st.integers(1, 2))
    def take_over(self, worker: WorkerId, capacity: int) -> None:
        expected = self.model.take_over(worker, capacity)
        claims: list[Claim] = self.wait(self.store.runs.claim_expired(worker, capacity, CLAIM_SECONDS))
        assert sorted(map(_model_claim, claims), key=repr) == sorted(expected, key=repr)
        self.check_claims(claims)

    def check_claims(self, claims: list[Claim]) -> None:
        for claim in claims:
            run = self.model.runs[claim.run_id]
            assert (claim.last_seq, claim.max_attempts, claim.cancel_requested) == (
                len(run.log),
                run.max_attempts,
                run.cancel_requested,
            )
        self.claims += claims

    @precondition(lambda self: self.model.valid_claims())
    @rule(data=st.data())
    def expire_claim(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(self.model.valid_claims()))
        self.wait(self.store.expire_claim(run_id, 10_000 - self.model.expire(run_id)))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        worker = data.draw(WORKERS)
        newest = {claim.run_id: claim for claim in self.claims if claim.worker_id == worker}
        requested = (
            data.draw(st.lists(st.sampled_from(list(newest.values())), unique_by=lambda claim: claim.run_id))
            if newest
            else []
        )
        expected = {
            claim.run_id: self.model.runs[claim.run_id].cancel_requested
            for claim in requested
            if self.model.is_valid(_model_claim(claim))
        }
        assert self.wait(self.store.runs.renew(requested, CLAIM_SECONDS)) == expected

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), count=st.integers(0, 3))
    def append_in_order(self, data: st.DataObject, count: int) -> None:
        self.append(self.pick_claim(data), 1, count, None)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), step=st.sampled_from([1, 1, 0, 2, -1]), count=st.integers(0, 3), ends_as=ENDS)
    def append_any(self, data: st.DataObject, step: int, count: int, ends_as: Status | None) -> None:
        self.append(self.pick_claim(data), step, count, ends_as)

    def append(self, claim: Claim, step: int, count: int, ends_as: Status | None) -> None:
        number = self.model.runs[claim.run_id].batch_no + step
        texts = [str(self.events + nth) for nth in range(count)]
        self.events += count
        events = [run_events(claim.run_id).delta(MessageId("msg"), text) for text in texts]
        expected = self.model.append(_model_claim(claim), number, texts, ends_as)
        appended = self.wait(
            self.store.runs.append(
                Batch(claim, number, events, ends_as, "why" if ends_as is Status.FAILED else None)
            )
        )
        assert (appended and (appended.last_seq, appended.cancel_requested, appended.turn_passed)) == expected

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release_claim(self, data: st.DataObject) -> None:
        claim = self.pick_claim(data)
        assert self.wait(self.store.runs.release_claim(claim)) == self.model.release_claim(
            _model_claim(claim)
        )

    @precondition(lambda self: len(self.model.runs) > 2)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(self.model.valid_claims() * 3 + list(self.model.runs)))
        expected = self.model.cancel(run_id)
        answer = self.wait(self.store.runs.request_cancel(OWNER, run_id, closing_events(run_id)))
        assert (answer.changed, answer.turn_passed) == expected
        assert answer.run.status is self.model.runs[run_id].status

    @precondition(lambda self: any(is_terminal(run.status) for run in self.model.runs.values()))
    @rule(data=st.data())
    def prune(self, data: st.DataObject) -> None:
        run_id = data.draw(
            st.sampled_from([run.run_id for run in self.model.runs.values() if is_terminal(run.status)])
        )
        self.wait(self.store.set_run_age(run_id, 500))
        assert len(self.wait(self.store.runs.prune(250))) == self.model.prune([run_id])

    # -- invariants

    @invariant()
    def runs_are_equal(self) -> None:
        listed = self.wait(
            self.store.runs.list_runs(OWNER, session_id=None, statuses=[], before=None, limit=1000)
        )
        for run, expected in zip(reversed(listed), self.model.runs.values(), strict=True):
            assert run.run_id == expected.run_id
            assert run.session_id == SessionId(expected.session)
            assert (run.status, run.attempt, run.max_attempts) == (
                expected.status,
                expected.attempt,
                expected.max_attempts,
            )
            assert (run.oldest_seq, run.last_seq, run.error_message) == (
                expected.oldest,
                len(expected.log),
                expected.error,
            )
            assert (run.started_at is not None) == expected.was_started
            assert (run.finished_at is not None) == is_terminal(expected.status)
            assert (run.cancel_requested_at is not None) == expected.cancel_requested

    @invariant()
    def queues_are_equal(self) -> None:
        runs = list(self.model.runs.values())
        depth = QueueDepth(
            ready=sum(run.is_ready for run in runs),
            waiting=sum(run.is_waiting for run in runs),
            running=sum(run.status is Status.RUNNING for run in runs),
        )
        assert self.wait(self.store.runs.queue_depth()) == depth
        for worker in (A, B):
            requested = {
                run.run_id
                for run in runs
                if run.owner == worker and run.status is Status.RUNNING and run.cancel_requested
            }
            assert self.wait(self.store.runs.requested_cancels(worker)) == requested

    def teardown(self) -> None:
        """Compare the logs once, at the end."""
        assert self.wait(self.store.runs.heads(list(self.model.runs))) == {
            run.run_id: len(run.log) for run in self.model.runs.values()
        }
        for run in self.model.runs.values():
            log = self.wait(self.store.runs.events_after(run.run_id, 0, 1000))
            assert [(event.seq, _text(event)) for event in log] == list(enumerate(run.log, start=1))[
                run.oldest - 1 :
            ]
            bounds = Bounds(run.oldest, len(run.log), is_terminal(run.status))
            assert self.wait(self.store.runs.bounds(OWNER, run.run_id)) == bounds


def _model_claim(claim: Claim) -> ModelClaim:
    return ModelClaim(claim.run_id, claim.worker_id, claim.attempt)


def _text(event: LoggedEvent) -> str:
    return decode_payload(event).get("text", event.type)


@pytest.fixture
def machine(kind: str, url: str, folder: Path) -> Iterator[type[QueueMachine]]:
    """Return the machine on an open store, with its own event loop."""
    with asyncio.Runner() as runner:
        opened = runner.run(open_migrated_store(kind, folder=folder, database_url=url))

        class Machine(QueueMachine):
            store = opened

            def wait(self, operation: Awaitable[Any]) -> Any:
                async def answer() -> Any:
                    return await asyncio.wait_for(operation, 2 * TIMEOUT_SECONDS)

                return runner.run(answer())

        yield Machine
        runner.run(opened.close())


@requirements.rule("RX-50", "RX-13", "RX-22", "RX-25", "RX-28", "RX-29")
def test_store_gives_the_same_answers_as_the_model(kind: str, machine: type[QueueMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES[kind],
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
