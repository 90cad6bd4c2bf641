"""The lease of a document: one holder, 15 seconds, and the user always wins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from easel.core.document.lease import TTL, Free, Held, check_out, preempt, release, renew, require
from easel.errors import HostError, LeaseExpired, LockNotAvailable, LockNotOwned, StaleEpoch
from easel.ids import RunId, SessionId
from tests.requirements import case, rule

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
RUN, OTHER = RunId("run_a"), RunId("run_b")
SESSION = SessionId("session")
MOMENT = timedelta(microseconds=1)


def take(
    lease: Free | Held,
    run_id: RunId = RUN,
    now: datetime = NOW,
    randomness: str = "r",
    *,
    interrupted: bool = False,
) -> Held:
    return check_out(
        lease, run_id=run_id, session_id=SESSION, now=now, randomness=randomness, is_interrupted=interrupted
    )


@rule("CT-09", "CT-12")
def test_check_out_gives_a_lease_of_15_seconds_in_the_current_epoch() -> None:
    held = take(Free(7))
    assert (held.epoch, held.run_id, held.session_id) == (7, RUN, SESSION)
    assert held.expires_at == NOW + timedelta(seconds=15)
    assert require(held, lease_id=held.lease_id, run_id=RUN, now=NOW) == held


@rule("CT-08", "CT-10")
@pytest.mark.parametrize("run_id", [RUN, OTHER])
def test_live_lease_is_exclusive_also_for_its_own_run(run_id: RunId) -> None:
    held = take(Free(0))
    with pytest.raises(LockNotAvailable) as refused:
        take(held, run_id, NOW + TTL - MOMENT)
    assert refused.value.details["expires_at"] == held.expires_at.isoformat()


@rule("CT-12", "CT-16")
@case("C3")
def test_lease_ends_after_15_seconds_even_if_the_document_stays_free() -> None:
    held = take(Free(0))
    assert require(held, lease_id=held.lease_id, run_id=RUN, now=NOW + TTL - MOMENT)
    with pytest.raises(LeaseExpired):
        require(held, lease_id=held.lease_id, run_id=RUN, now=NOW + TTL)
    assert take(held, OTHER, NOW + TTL, "s").run_id == OTHER


@rule("CT-13")
def test_renewal_moves_the_end_and_revives_nothing() -> None:
    held = renew(take(Free(0)), NOW + timedelta(seconds=10))
    assert held.expires_at == NOW + timedelta(seconds=25)
    for gone, now, error in (
        (held, NOW + timedelta(seconds=25), LeaseExpired),
        (preempt(held), NOW, StaleEpoch),
        (release(held), NOW, LeaseExpired),
    ):
        with pytest.raises(error):
            renew(require(gone, lease_id=held.lease_id, run_id=RUN, now=now), now)


@rule("CT-16")
def test_release_keeps_the_epoch_and_frees_the_document() -> None:
    held = take(Free(3))
    assert release(held) == Free(3)
    assert take(release(held), OTHER).epoch == 3


@rule("CT-18", "CT-19")
@case("C2")
def test_user_action_ends_the_lease_and_raises_the_epoch() -> None:
    held = take(Free(3))
    freed = preempt(held)
    assert freed.epoch == 4
    with pytest.raises(StaleEpoch):
        require(freed, lease_id=held.lease_id, run_id=RUN, now=NOW)
    with pytest.raises(StaleEpoch):
        take(freed)
    assert take(freed, OTHER).epoch == 4


@rule("CT-18")
def test_user_action_raises_the_epoch_of_a_free_document_too() -> None:
    held = take(Free(0))
    assert preempt(release(held)).epoch == 1
    with pytest.raises(StaleEpoch):
        require(preempt(release(held)), lease_id=held.lease_id, run_id=RUN, now=NOW)


@rule("CT-19")
def test_interrupted_run_gets_no_other_lease() -> None:
    interrupted = preempt(take(Free(0)))
    both = preempt(take(interrupted, OTHER))  # another run was interrupted after it
    for later in (interrupted, preempt(interrupted), release(take(interrupted, OTHER)), both):
        with pytest.raises(StaleEpoch):
            take(later)
    with pytest.raises(StaleEpoch):
        take(Free(0), interrupted=True)


@rule("RS-48", "CT-11", "CT-26")
def test_checks_come_in_the_order_owner_epoch_time() -> None:
    ours = take(Free(2))
    expired = NOW + TTL
    theirs = take(Free(2), OTHER)
    cases: list[tuple[str, Free | Held, str, datetime, type[HostError] | None]] = [
        ("valid", ours, ours.lease_id, NOW, None),
        ("of another run", theirs, theirs.lease_id, NOW, LockNotOwned),
        ("of another run, stale and expired", preempt(theirs), theirs.lease_id, expired, LockNotOwned),
        ("unknown", ours, "lease_2_x_y", NOW, LockNotOwned),
        ("empty", ours, "", NOW, LockNotOwned),
        ("of a future epoch", Free(1), ours.lease_id, NOW, LockNotOwned),
        ("stale and expired", preempt(ours), ours.lease_id, expired, StaleEpoch),
        ("stale, another holder", take(preempt(ours), OTHER), ours.lease_id, NOW, StaleEpoch),
        ("expired", ours, ours.lease_id, expired, LeaseExpired),
        ("released", release(ours), ours.lease_id, NOW, LeaseExpired),
        ("expired, another holder", take(ours, OTHER, expired), ours.lease_id, expired, LeaseExpired),
        ("a former lease of the run", take(release(ours), randomness="s"), ours.lease_id, NOW, LeaseExpired),
    ]
    for what, lease, lease_id, now, error in cases:
        try:
            require(lease, lease_id=lease_id, run_id=RUN, now=now)
            raised = None
        except HostError as refusal:
            raised = type(refusal)
        assert raised is error, what


@rule("RS-48")
@pytest.mark.parametrize(
    "lease_id",
    [
        "lease",
        "lease_",
        "lease_1",
        "lease_²_x_y",
        "lease_-1_x_y",
        "lease_" + "9" * 5_000 + "_x_y",
        "x" * 100_000,
        "\ud800",
    ],
)
def test_hostile_lease_ids_are_not_owned(lease_id: str) -> None:
    mark = take(Free(0)).lease_id.split("_")[2]
    for attempt in (lease_id, lease_id.replace("_x_", f"_{mark}_")):
        with pytest.raises((LockNotOwned, LeaseExpired)) as refused:
            require(Free(0), lease_id=attempt, run_id=RUN, now=NOW)
        assert len(refused.value.message) < 300
