"""Sign-out: a revoked cookie is refused on every instance, and other sign-ins cost no extra query."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.stream.notifications import SignedOut, from_text, to_text
from easel.core.token import TokenKind
from easel.errors import NotSignedIn, Unavailable
from easel.host.auth import revoked_sign_ins
from easel.host.auth.revoked_sign_ins import RevokedSignIns
from easel.host.auth.sign_in import COOKIE_SECONDS, SignIn
from easel.host.auth.tokens import Tokens
from easel.stores.sqlite.notifier import LocalNotifier
from tests.requirements import case
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from easel.core.principal import Principal
    from tests.host.conftest import RunHarness

NOW = 1_800_000_000.0
TOKEN = "the right token"


def new_instance(harness: RunHarness, notifier: LocalNotifier | None = None) -> SignIn:
    """Without the shared notifier the instance gets no notifications, as if they were lost."""
    revoked = RevokedSignIns(
        harness.database.sign_ins, notifier or LocalNotifier(), keep_seconds=COOKIE_SECONDS
    )
    return SignIn(TOKEN, harness.database.tokens, revoked, key="k" * 43, recheck_seconds=0.01)


@pytest.fixture
def sign_in(harness: RunHarness) -> SignIn:
    return new_instance(harness, harness.database.notifier)


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


async def authenticate(sign_in: SignIn, cookie: str) -> Principal:
    principal = await sign_in.authenticate_cookie(cookie, NOW)
    assert principal is not None
    return principal


@case("O9")
async def test_sign_out_ends_the_cookie_of_one_browser_only(sign_in: SignIn) -> None:
    mine, other = sign_in.new_cookie(NOW), sign_in.new_cookie(NOW)
    assert mine != other, "each has its own sign-in"
    await sign_in.sign_out(await authenticate(sign_in, mine))
    assert await sign_in.authenticate_cookie(mine, NOW) is None
    await authenticate(sign_in, other)


@case("O9")
async def test_sign_out_is_notified_to_other_instances(harness: RunHarness, queries: list[list[str]]) -> None:
    here, there = (new_instance(harness, harness.database.notifier) for _ in range(2))
    cookie = here.new_cookie(NOW)
    await authenticate(there, cookie)
    queries.clear()
    await here.sign_out(await authenticate(here, cookie))
    for _ in range(3):
        await asyncio.sleep(0)  # the notifier of one process delivers in the next turn of the loop
    assert await there.authenticate_cookie(cookie, NOW) is None
    assert len(queries) == 1, "the one that authenticated the cookie here"


@case("O9")
async def test_lost_notification_delays_sign_out_by_the_trust_time(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, new = (new_instance(harness) for _ in range(3))
    cookie = here.new_cookie(NOW)
    await authenticate(there, cookie)
    await here.sign_out(await authenticate(here, cookie))
    assert await new.authenticate_cookie(cookie, NOW) is None, (
        "an instance that does not know the sign-in queries it"
    )
    await authenticate(there, cookie)
    monkeypatch.setattr(revoked_sign_ins, "TRUST_SECONDS", 0.0)
    assert await there.authenticate_cookie(cookie, NOW) is None


async def test_sign_in_is_queried_once_and_not_for_every_request(
    sign_in: SignIn, queries: list[list[str]]
) -> None:
    cookie = sign_in.new_cookie(NOW)
    for _ in range(50):
        await authenticate(sign_in, cookie)
    assert len(queries) == 1


async def test_known_sign_in_stays_valid_while_the_database_is_unavailable_and_an_unknown_one_fails(
    harness: RunHarness, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie, new = sign_in.new_cookie(NOW), sign_in.new_cookie(NOW)
    await authenticate(sign_in, cookie)
    monkeypatch.setattr(revoked_sign_ins, "TRUST_SECONDS", 0.0)

    async def fail(_: Sequence[str]) -> Any:
        raise Unavailable(what="The database")

    monkeypatch.setattr(harness.database.sign_ins, "filter_revoked", fail)
    await authenticate(sign_in, cookie)
    with pytest.raises(Unavailable):
        await sign_in.authenticate_cookie(new, NOW)


@case("O9")
@pytest.mark.parametrize("is_notified", [True, False])
async def test_sign_out_closes_what_the_cookie_opened_on_every_instance_and_nothing_else(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch, is_notified: bool
) -> None:
    notifier = harness.database.notifier if is_notified else None
    here, there = (new_instance(harness, notifier) for _ in range(2))
    cookie, other = here.new_cookie(NOW), here.new_cookie(NOW)
    all_open = asyncio.Barrier(4)

    async def hold_open(sign_in: SignIn, cookie: str) -> None:
        async with sign_in.while_valid(await authenticate(sign_in, cookie)):
            await all_open.wait()
            await asyncio.Event().wait()

    mine, remote, of_other = (
        asyncio.create_task(hold_open(*args)) for args in ((here, cookie), (there, cookie), (there, other))
    )
    await within_timeout(all_open.wait())
    await here.sign_out(await authenticate(here, cookie))
    with pytest.raises(NotSignedIn):
        await asyncio.wait_for(mine, TIMEOUT_SECONDS)
    if not is_notified:
        monkeypatch.setattr(revoked_sign_ins, "TRUST_SECONDS", 0.0)
    with pytest.raises(NotSignedIn):
        await asyncio.wait_for(remote, TIMEOUT_SECONDS)
    assert not of_other.done()
    of_other.cancel()
    await asyncio.gather(of_other, return_exceptions=True)
    await asyncio.gather(here.close(), there.close())


@case("O9")
async def test_block_entered_during_sign_out_ends_at_once(sign_in: SignIn, harness: RunHarness) -> None:
    principal, is_notified = await authenticate(sign_in, sign_in.new_cookie(NOW)), asyncio.Event()
    harness.database.notifier.listen(lambda _: is_notified.set())
    await sign_in.sign_out(principal)
    await within_timeout(
        is_notified.wait()
    )  # the watchers of this sign-in were called; the next one is too late
    with pytest.raises(NotSignedIn):
        async with asyncio.timeout(TIMEOUT_SECONDS), sign_in.while_valid(principal):
            await asyncio.Event().wait()
    await sign_in.close()


@case("O9")
async def test_watcher_of_a_token_and_a_sign_in_is_called_once(sign_in: SignIn, harness: RunHarness) -> None:
    tokens = Tokens(harness.database.tokens, harness.audit)
    made, secret = await tokens.create("owner", TokenKind.USER)
    owner = await sign_in.authenticate_token(secret)
    assert owner is not None
    principal = await authenticate(sign_in, sign_in.new_cookie(NOW, owner))
    assert principal.token_id == made.token_id
    calls: list[str] = []
    sign_in.watch(principal, lambda: calls.append("first"))
    stop = sign_in.watch(principal, lambda: calls.append("stopped"))
    stop()
    await sign_in.sign_out(principal)
    await tokens.revoke(made.token_id)
    await sign_in.end_revoked()
    assert calls == ["first"]
    await sign_in.close()


@case("O9")
async def test_sign_in_that_is_watched_during_the_recheck_stays_open(
    sign_in: SignIn, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await authenticate(sign_in, sign_in.new_cookie(NOW))
    second = await authenticate(sign_in, sign_in.new_cookie(NOW))
    filter_revoked, calls = harness.database.sign_ins.filter_revoked, list[str]()

    async def watch_second(sign_in_ids: Sequence[str]) -> set[str]:
        sign_in.watch(second, lambda: calls.append("second"))
        return await filter_revoked(sign_in_ids)

    monkeypatch.setattr(revoked_sign_ins, "TRUST_SECONDS", 0.0)
    monkeypatch.setattr(harness.database.sign_ins, "filter_revoked", watch_second)
    sign_in.watch(first, lambda: calls.append("first"))
    await sign_in.end_revoked()
    assert calls == []
    await sign_in.close()


@case("O9")
async def test_browser_that_signs_in_again_keeps_its_sign_in(sign_in: SignIn, harness: RunHarness) -> None:
    first = sign_in.new_cookie(NOW)
    again = sign_in.new_cookie(NOW + 60, before=await authenticate(sign_in, first))
    await sign_in.sign_out(await authenticate(sign_in, again))
    assert [await sign_in.authenticate_cookie(cookie, NOW) for cookie in (first, again)] == [None, None]
    _, secret = await Tokens(harness.database.tokens, harness.audit).create("owner", TokenKind.USER)
    other = await sign_in.authenticate_token(secret)
    assert other is not None
    owners = sign_in.new_cookie(NOW)
    theirs = sign_in.new_cookie(NOW, other, before=await authenticate(sign_in, owners))
    await sign_in.sign_out(await authenticate(sign_in, theirs))
    await authenticate(sign_in, owners)


async def test_sign_out_with_a_token_does_nothing(sign_in: SignIn) -> None:
    principal = await sign_in.authenticate_token(TOKEN)
    assert principal is not None
    await sign_in.sign_out(principal)
    assert await sign_in.authenticate_token(TOKEN) is not None


async def test_revoked_sign_in_that_was_evicted_is_queried_again(
    harness: RunHarness, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revoked_sign_ins, "MAX_CACHED", 3)
    cookies = [sign_in.new_cookie(NOW) for _ in range(8)]
    for cookie in cookies:
        await sign_in.sign_out(await authenticate(sign_in, cookie))
    assert [await sign_in.authenticate_cookie(cookie, NOW) for cookie in cookies] == [None] * 8


def test_sign_out_notification_survives_its_text_form() -> None:
    notification = SignedOut("sign_0123")
    assert from_text(to_text(notification)) == notification
