"""Sign-out: a revoked cookie is refused on every instance, and other sign-ins cost no extra query."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.stream.notifications import SignedOut, from_text, to_text
from easel.core.token import TokenKind
from easel.errors import NotSignedIn, Unavailable
from easel.host.auth import revoked_sign_ins
from easel.host.auth.tokens import Tokens
from tests.host.auth.signing_in import NOW, TOKEN, SigningIn
from tests.requirements import case
from tests.support.principals import THE_OWNER
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.host.conftest import RunHarness


@pytest.fixture
def signing_in(harness: RunHarness) -> SigningIn:
    return SigningIn(harness, notifier=harness.database.notifier)


@pytest.fixture
def queries(harness: RunHarness, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The sign-ins that were queried, by query."""
    queried: list[list[str]] = []
    filter_revoked = harness.database.sign_ins.filter_revoked

    async def counted(sign_in_ids: Sequence[str]) -> set[str]:
        queried.append(list(sign_in_ids))
        return await filter_revoked(sign_in_ids)

    monkeypatch.setattr(harness.database.sign_ins, "filter_revoked", counted)
    return queried


@case("O9")
async def test_sign_out_ends_the_cookie_of_one_browser_only(signing_in: SigningIn) -> None:
    mine, other = signing_in.cookies.issue(NOW, THE_OWNER), signing_in.cookies.issue(NOW, THE_OWNER)
    assert mine != other, "each has its own sign-in"
    await signing_in.revocation.sign_out(await signing_in.by_cookie(mine))
    assert await signing_in.cookies.check(mine, NOW) is None
    await signing_in.by_cookie(other)


@case("O9")
async def test_sign_out_is_notified_to_other_instances(harness: RunHarness, queries: list[list[str]]) -> None:
    here, there = (SigningIn(harness, notifier=harness.database.notifier) for _ in range(2))
    cookie = here.cookies.issue(NOW, THE_OWNER)
    await there.by_cookie(cookie)
    queries.clear()
    await here.revocation.sign_out(await here.by_cookie(cookie))
    for _ in range(3):
        await asyncio.sleep(0)  # the notifier of one process delivers in the next turn of the loop
    assert await there.cookies.check(cookie, NOW) is None
    assert len(queries) == 1, "the one that authenticated the cookie here"


@case("O9")
async def test_lost_notification_delays_sign_out_by_the_trust_time(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, new = (SigningIn(harness) for _ in range(3))
    cookie = here.cookies.issue(NOW, THE_OWNER)
    await there.by_cookie(cookie)
    await here.revocation.sign_out(await here.by_cookie(cookie))
    assert await new.cookies.check(cookie, NOW) is None, (
        "an instance that does not know the sign-in queries it"
    )
    await there.by_cookie(cookie)
    monkeypatch.setattr(revoked_sign_ins, "TRUST_SECONDS", 0.0)
    assert await there.cookies.check(cookie, NOW) is None


async def test_sign_in_is_queried_once_and_not_for_every_request(
    signing_in: SigningIn, queries: list[list[str]]
) -> None:
    cookie = signing_in.cookies.issue(NOW, THE_OWNER)
    for _ in range(50):
        await signing_in.by_cookie(cookie)
    assert len(queries) == 1


async def test_known_sign_in_stays_valid_while_the_database_is_unavailable_and_an_unknown_one_fails(
    harness: RunHarness, signing_in: SigningIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie, new = signing_in.cookies.issue(NOW, THE_OWNER), signing_in.cookies.issue(NOW, THE_OWNER)
    await signing_in.by_cookie(cookie)
    monkeypatch.setattr(revoked_sign_ins, "TRUST_SECONDS", 0.0)

    async def fail(_: Sequence[str]) -> Any:
        raise Unavailable(what="The database")

    monkeypatch.setattr(harness.database.sign_ins, "filter_revoked", fail)
    await signing_in.by_cookie(cookie)
    with pytest.raises(Unavailable):
        await signing_in.cookies.check(new, NOW)


@case("O9")
@pytest.mark.parametrize("is_notified", [True, False])
async def test_sign_out_closes_what_the_cookie_opened_on_every_instance_and_nothing_else(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch, is_notified: bool
) -> None:
    notifier = harness.database.notifier if is_notified else None
    here, there = (SigningIn(harness, notifier=notifier) for _ in range(2))
    cookie, other = here.cookies.issue(NOW, THE_OWNER), here.cookies.issue(NOW, THE_OWNER)
    all_open = asyncio.Barrier(4)

    async def hold_open(signing_in: SigningIn, cookie: str) -> None:
        async with signing_in.revocation.while_valid(await signing_in.by_cookie(cookie)):
            await all_open.wait()
            await asyncio.Event().wait()

    mine, remote, of_other = (
        asyncio.create_task(hold_open(*args)) for args in ((here, cookie), (there, cookie), (there, other))
    )
    await within_timeout(all_open.wait())
    await here.revocation.sign_out(await here.by_cookie(cookie))
    with pytest.raises(NotSignedIn):
        await asyncio.wait_for(mine, TIMEOUT_SECONDS)
    if not is_notified:
        monkeypatch.setattr(revoked_sign_ins, "TRUST_SECONDS", 0.0)
    with pytest.raises(NotSignedIn):
        await asyncio.wait_for(remote, TIMEOUT_SECONDS)
    assert not of_other.done()
    of_other.cancel()
    await asyncio.gather(of_other, return_exceptions=True)
    await asyncio.gather(here.revocation.close(), there.revocation.close())


@case("O9")
async def test_block_entered_during_sign_out_ends_at_once(signing_in: SigningIn, harness: RunHarness) -> None:
    principal, is_notified = (
        await signing_in.by_cookie(signing_in.cookies.issue(NOW, THE_OWNER)),
        asyncio.Event(),
    )
    harness.database.notifier.listen(lambda _: is_notified.set())
    await signing_in.revocation.sign_out(principal)
    await within_timeout(
        is_notified.wait()
    )  # the watchers of this sign-in were called; the next one is too late
    with pytest.raises(NotSignedIn):
        async with asyncio.timeout(TIMEOUT_SECONDS), signing_in.revocation.while_valid(principal):
            await asyncio.Event().wait()
    await signing_in.revocation.close()


@case("O9")
async def test_watcher_of_a_token_and_a_sign_in_is_called_once(
    signing_in: SigningIn, harness: RunHarness
) -> None:
    tokens = Tokens(harness.database.tokens, harness.audit)
    made, secret = await tokens.create("owner", TokenKind.USER)
    owner = await signing_in.credentials.authenticate(secret)
    assert owner is not None
    principal = await signing_in.by_cookie(signing_in.cookies.issue(NOW, owner))
    assert principal.token_id == made.token_id
    calls: list[str] = []
    signing_in.revocation.watch(principal, lambda: calls.append("first"))
    stop = signing_in.revocation.watch(principal, lambda: calls.append("stopped"))
    stop()
    await signing_in.revocation.sign_out(principal)
    await tokens.revoke(made.token_id)
    await signing_in.revocation.end_revoked()
    assert calls == ["first"]
    await signing_in.revocation.close()


@case("O9")
async def test_sign_in_that_is_watched_during_the_recheck_stays_open(
    signing_in: SigningIn, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await signing_in.by_cookie(signing_in.cookies.issue(NOW, THE_OWNER))
    second = await signing_in.by_cookie(signing_in.cookies.issue(NOW, THE_OWNER))
    filter_revoked, calls = harness.database.sign_ins.filter_revoked, list[str]()

    async def watch_second(sign_in_ids: Sequence[str]) -> set[str]:
        signing_in.revocation.watch(second, lambda: calls.append("second"))
        return await filter_revoked(sign_in_ids)

    monkeypatch.setattr(revoked_sign_ins, "TRUST_SECONDS", 0.0)
    monkeypatch.setattr(harness.database.sign_ins, "filter_revoked", watch_second)
    signing_in.revocation.watch(first, lambda: calls.append("first"))
    await signing_in.revocation.end_revoked()
    assert calls == []
    await signing_in.revocation.close()


@case("O9")
async def test_browser_that_signs_in_again_keeps_its_sign_in(
    signing_in: SigningIn, harness: RunHarness
) -> None:
    first = signing_in.cookies.issue(NOW, THE_OWNER)
    again = signing_in.cookies.issue(NOW + 60, THE_OWNER, before=await signing_in.by_cookie(first))
    await signing_in.revocation.sign_out(await signing_in.by_cookie(again))
    assert [await signing_in.cookies.check(cookie, NOW) for cookie in (first, again)] == [None, None]
    _, secret = await Tokens(harness.database.tokens, harness.audit).create("owner", TokenKind.USER)
    other = await signing_in.credentials.authenticate(secret)
    assert other is not None
    owners = signing_in.cookies.issue(NOW, THE_OWNER)
    theirs = signing_in.cookies.issue(NOW, other, before=await signing_in.by_cookie(owners))
    await signing_in.revocation.sign_out(await signing_in.by_cookie(theirs))
    await signing_in.by_cookie(owners)


async def test_sign_out_with_a_token_does_nothing(signing_in: SigningIn) -> None:
    principal = await signing_in.credentials.authenticate(TOKEN)
    assert principal is not None
    await signing_in.revocation.sign_out(principal)
    assert await signing_in.credentials.authenticate(TOKEN) is not None


async def test_revoked_sign_in_that_was_evicted_is_queried_again(
    harness: RunHarness, signing_in: SigningIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revoked_sign_ins, "MAX_CACHED", 3)
    cookies = [signing_in.cookies.issue(NOW, THE_OWNER) for _ in range(8)]
    for cookie in cookies:
        await signing_in.revocation.sign_out(await signing_in.by_cookie(cookie))
    assert [await signing_in.cookies.check(cookie, NOW) for cookie in cookies] == [None] * 8


def test_sign_out_notification_survives_its_text_form() -> None:
    notification = SignedOut("sign_0123")
    assert from_text(to_text(notification)) == notification
