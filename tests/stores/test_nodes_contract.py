"""Tool nodes, calls across instances and tokens on every store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.account import Member, Person
from easel.core.call import CALL_MOVES, LOST, Answer, CallStatus, NewCall
from easel.core.principal import Role
from easel.core.token import NewToken, TokenKind, digest_of, principal_of
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import Node
from easel.errors import Forbidden
from easel.ids import OWNER, AccountId, CallId, UserId, new_call_id, new_connection_id, new_token_id
from easel.stores import named_sql
from tests.requirements import rule
from tests.stores.harness import CONSTRAINT_ERRORS, Store, other_connection, wait_for_blocked_statement
from tests.stores.test_artifacts_contract import ON_POSTGRES

if TYPE_CHECKING:
    from easel.host.ports import CallStore, NodeStore, TokenStore

TTL_SECONDS = 3600.0
OWNER_MEMBER = Member(OWNER, Person(UserId(OWNER), is_operator=True), Role.ADMIN)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string", "x-shell": True}, "ü": {}},
}
BASH = ToolDefinition("laptop__Bash", "Runs.", SCHEMA, destructive=True)
READ = ToolDefinition("laptop__Read", "", {"type": "object"}, read_only=True, idempotent=True)


@pytest.fixture
def nodes(store: Store) -> NodeStore:
    return store.database.nodes


@pytest.fixture
def calls(store: Store) -> CallStore:
    return store.database.calls


@pytest.fixture
def tokens(store: Store) -> TokenStore:
    return store.database.tokens


def new_node(
    node_id: str = "laptop", *, user: AccountId = OWNER, instance: str = "ins_a", person: str = OWNER
) -> Node:
    tools = {tool.name: tool for tool in (BASH, READ)}
    return Node(
        account_id=user,
        node_id=node_id,
        user_id=UserId(person),
        connection_id=new_connection_id(),
        instance_id=instance,
        version="1",
        platform="linux",
        tools=tools,
    )


async def register(
    nodes: NodeStore, node: Node, seconds: float = TTL_SECONDS, max_nodes: int = 100
) -> list[CallId]:
    answer = await nodes.register(node, seconds=seconds, max_nodes=max_nodes)
    assert answer is not None
    return list(answer.lost_calls)


def new_call(node: Node, *, seconds: float = TTL_SECONDS, user: AccountId = OWNER) -> NewCall:
    return NewCall(
        new_call_id(),
        user,
        node.connection_id,
        "tool.invoke",
        '{"tool":"Bash","args":{"command":"ls"}}',
        seconds,
        caller_ttl_seconds=TTL_SECONDS,
    )


async def expire_node(store: Store, node: Node) -> None:
    """Let the node expire."""
    await store.sql(
        f"update nodes set expires_at = {store.ago(1)} where connection_id = '{node.connection_id}'"
    )


# --- connections --------------------------------------------------------------------------------------------


async def test_node_is_read_back_as_registered(nodes: NodeStore) -> None:
    node = new_node()
    entered = await nodes.register(node, seconds=TTL_SECONDS, max_nodes=1)
    assert entered is not None
    [found] = await nodes.list_nodes(OWNER)
    assert found == Node(
        **{**{name: getattr(node, name) for name in Node.__slots__}, "connected_at": entered.connected_at}
    )
    assert list(found.tools) == [BASH.name, READ.name]


async def test_user_does_not_see_nodes_of_others(nodes: NodeStore, store: Store) -> None:
    other = await store.add_user("mallory")
    await register(nodes, new_node())
    await register(nodes, new_node(user=other))
    assert [node.account_id for node in await nodes.list_nodes(other)] == [other]
    assert await nodes.list_nodes(AccountId("nobody")) == []


async def test_nodes_are_listed_by_id_and_expire_with_their_instance(nodes: NodeStore, store: Store) -> None:
    some = {name: new_node(name) for name in ("b", "a", "Z", "c")}
    for node in some.values():
        await register(nodes, node)
    assert [node.node_id for node in await nodes.list_nodes(OWNER)] == ["Z", "a", "b", "c"]
    await expire_node(store, some["b"])
    assert [node.node_id for node in await nodes.list_nodes(OWNER)] == ["Z", "a", "c"]
    assert await nodes.renew([some["b"].connection_id], TTL_SECONDS) == {some["b"].connection_id}, (
        "late, but not replaced"
    )
    assert len(await nodes.list_nodes(OWNER)) == 4


async def test_reconnected_node_replaces_its_older_connection(nodes: NodeStore) -> None:
    older, newer = new_node(), new_node(instance="ins_b")
    await register(nodes, older)
    await register(nodes, newer)
    [found] = await nodes.list_nodes(OWNER)
    assert (found.connection_id, found.instance_id) == (newer.connection_id, "ins_b")
    assert await nodes.renew([older.connection_id, newer.connection_id], TTL_SECONDS) == {newer.connection_id}
    await nodes.unregister(older.connection_id)
    assert len(await nodes.list_nodes(OWNER)) == 1, "the late end of the older connection changes nothing"
    await nodes.unregister(newer.connection_id)
    assert await nodes.list_nodes(OWNER) == []


async def test_swept_node_is_registered_again_unless_replaced(
    nodes: NodeStore,
) -> None:
    node = new_node()
    first = await nodes.register(node, seconds=TTL_SECONDS, max_nodes=1)
    assert first is not None
    await nodes.sweep(-2 * TTL_SECONDS)
    assert await nodes.renew([node.connection_id], TTL_SECONDS) == set()
    assert await nodes.register_again(node, first.connected_at, seconds=TTL_SECONDS)
    assert [found.connected_at for found in await nodes.list_nodes(OWNER)] == [first.connected_at]
    await nodes.unregister(node.connection_id)
    await register(nodes, new_node())
    assert not await nodes.register_again(node, first.connected_at, seconds=TTL_SECONDS)


async def test_number_of_nodes_per_user_is_limited(nodes: NodeStore, store: Store) -> None:
    first, second = new_node("first"), new_node("second")
    await register(nodes, first, max_nodes=2)
    await register(nodes, second, max_nodes=2)
    assert await nodes.register(new_node("third"), seconds=TTL_SECONDS, max_nodes=2) is None
    await register(
        nodes, new_node("second"), max_nodes=2
    )  # registering again keeps the time of the connection
    await expire_node(store, first)
    await register(nodes, new_node("third"), max_nodes=2)


async def test_last_of_many_connections_of_a_node_is_registered(nodes: NodeStore) -> None:
    some = [new_node() for _ in range(10)]
    await asyncio.gather(*(register(nodes, node) for node in some))
    [found] = await nodes.list_nodes(OWNER)
    assert await nodes.renew([node.connection_id for node in some], TTL_SECONDS) == {found.connection_id}


@rule("RS-76")
async def test_connected_node_is_replaced_by_its_person_only(nodes: NodeStore, store: Store) -> None:
    mine = new_node()
    await register(nodes, mine)
    taken = new_node(person="mallory")
    with pytest.raises(Forbidden, match="another person has the node laptop"):
        await nodes.register(taken, seconds=TTL_SECONDS, max_nodes=2)
    [found] = await nodes.list_nodes(OWNER)
    assert (found.connection_id, found.user_id) == (mine.connection_id, OWNER)
    await expire_node(store, mine)
    await register(nodes, taken)
    assert [found.user_id for found in await nodes.list_nodes(OWNER)] == ["mallory"], "it was not connected"


# --- calls --------------------------------------------------------------------------------------------------


@rule("CV-03")
async def test_call_is_placed_taken_answered_and_collected_once(
    nodes: NodeStore, calls: CallStore, store: Store
) -> None:
    node = new_node()
    await register(nodes, node)
    call = new_call(node)
    assert await calls.place_call(call)
    assert await calls.collect_answers([call.call_id]) == {}
    assert await calls.take_calls(["con_other"]) == []
    [taken] = await calls.take_calls([node.connection_id])
    assert (taken.call_id, taken.account_id, taken.target, taken.method) == (
        call.call_id,
        OWNER,
        node.connection_id,
        "tool.invoke",
    )
    assert msgspec.json.decode(taken.params) == {"tool": "Bash", "args": {"command": "ls"}}
    assert TTL_SECONDS - 60 < taken.seconds_left <= TTL_SECONDS
    assert await calls.take_calls([node.connection_id]) == []
    assert not await calls.save_answer(call.call_id, "con_other", '{"result":0}'), (
        "only the connection that took it answers"
    )
    assert await calls.save_answer(call.call_id, node.connection_id, '{"result":1}')
    assert not await calls.save_answer(call.call_id, node.connection_id, '{"result":2}')
    [stored] = (await calls.collect_answers([call.call_id])).values()
    assert stored is not None
    assert Answer.from_stored(msgspec.json.decode(stored)) == Answer(1)
    assert await calls.collect_answers([call.call_id]) == {}
    assert await store.sql("select * from calls") == []


async def test_concurrent_takes_get_each_call_once(nodes: NodeStore, calls: CallStore) -> None:
    node = new_node()
    await register(nodes, node)
    some = [new_call(node) for _ in range(20)]
    await asyncio.gather(*(calls.place_call(call) for call in some))
    taken = await asyncio.gather(*(calls.take_calls([node.connection_id]) for _ in range(8)))
    assert sorted(call.call_id for batch in taken for call in batch) == sorted(call.call_id for call in some)


async def test_call_to_a_disconnected_node_is_not_placed(
    nodes: NodeStore, calls: CallStore, store: Store
) -> None:
    node, stranger = new_node(), await store.add_user("mallory")
    assert not await calls.place_call(new_call(node))
    await register(nodes, node)
    assert not await calls.place_call(new_call(node, user=stranger))
    await expire_node(store, node)
    assert not await calls.place_call(new_call(node))
    await nodes.unregister(node.connection_id)
    assert not await calls.place_call(new_call(node))
    assert await store.sql("select * from calls") == []


@pytest.mark.parametrize("is_taken", [False, True])
@pytest.mark.parametrize("way", ["it leaves", "it connects again"])
async def test_open_calls_fail_when_their_connection_ends(
    nodes: NodeStore, calls: CallStore, way: str, is_taken: bool
) -> None:
    node, other = new_node(), new_node("other")
    for connected in (node, other):
        await register(nodes, connected)
    call, of_other = new_call(node), new_call(other)
    assert all([await calls.place_call(call), await calls.place_call(of_other)])
    if is_taken:
        assert len(await calls.take_calls([node.connection_id])) == 1
    failed = await (
        nodes.unregister(node.connection_id) if way == "it leaves" else register(nodes, new_node())
    )
    assert failed == [call.call_id]
    [(found, stored)] = (await calls.collect_answers([call.call_id, of_other.call_id])).items()
    assert found == call.call_id
    assert Answer.from_stored(msgspec.json.decode(stored or "")) == LOST


async def test_answer_is_collected_after_its_node_disconnected(nodes: NodeStore, calls: CallStore) -> None:
    node = new_node()
    await register(nodes, node)
    call = new_call(node)
    await calls.place_call(call)
    await calls.take_calls([node.connection_id])
    await calls.save_answer(call.call_id, node.connection_id, '{"result":"in time"}')
    assert await nodes.unregister(node.connection_id) == []
    [stored] = (await calls.collect_answers([call.call_id])).values()
    assert msgspec.json.decode(stored or "") == {"result": "in time"}


async def test_calls_to_a_crashed_instance_fail_when_its_nodes_expire(
    nodes: NodeStore, calls: CallStore, store: Store
) -> None:
    node = new_node()
    await register(nodes, node)
    call = new_call(node)
    await calls.place_call(call)
    await calls.take_calls([node.connection_id])
    assert await calls.collect_answers([call.call_id]) == {}
    await expire_node(store, node)
    assert await calls.collect_answers([call.call_id]) == {call.call_id: None}
    assert not await calls.save_answer(call.call_id, node.connection_id, '{"result":1}'), (
        "the late answer is refused"
    )


async def test_call_after_its_deadline_is_neither_taken_nor_answered(
    nodes: NodeStore, calls: CallStore, store: Store
) -> None:
    node = new_node()
    await register(nodes, node)
    late = new_call(node, seconds=-1)
    await calls.place_call(late)
    assert await calls.take_calls([node.connection_id]) == []
    slow = new_call(node)
    await calls.place_call(slow)
    await calls.take_calls([node.connection_id])
    await store.sql(f"update calls set deadline = {store.ago(1)} where call_id = '{slow.call_id}'")
    assert not await calls.save_answer(slow.call_id, node.connection_id, '{"result":1}')


async def test_cancelled_call_is_deleted_if_open_and_stopped_if_taken(
    nodes: NodeStore, calls: CallStore, store: Store
) -> None:
    node, mallory = new_node(), await store.add_user("mallory")
    await register(nodes, node)
    waiting, under_way = new_call(node), new_call(node)
    await calls.place_call(under_way)
    await calls.take_calls([node.connection_id])
    await calls.place_call(waiting)
    assert await calls.cancel_call(mallory, under_way.call_id) is None
    assert await calls.take_cancelled([node.connection_id], include_expired=True) == [], (
        "a call of another user cannot be cancelled"
    )
    assert await calls.cancel_call(OWNER, waiting.call_id) is None
    assert await calls.take_calls([node.connection_id]) == []
    assert await calls.cancel_call(OWNER, under_way.call_id) == node.connection_id
    assert not await calls.save_answer(under_way.call_id, node.connection_id, '{"result":1}')
    assert await calls.take_cancelled(["con_other"], include_expired=True) == []
    assert await calls.take_cancelled([node.connection_id], include_expired=True) == [under_way.call_id]
    assert await calls.take_cancelled([node.connection_id], include_expired=True) == []
    assert await store.sql("select * from calls") == []


@rule("RX-34")
async def test_call_of_an_expired_caller_is_not_taken_and_is_cancelled(
    nodes: NodeStore, calls: CallStore, store: Store
) -> None:
    """The instance of the caller crashed: its call must not run until the deadline."""
    node = new_node()
    await register(nodes, node)
    here = [node.connection_id]
    renewed, expired, waiting = new_call(node), new_call(node), new_call(node)
    for call in (renewed, expired):
        await calls.place_call(call)
    assert len(await calls.take_calls(here)) == 2
    await calls.place_call(waiting)
    await store.sql(f"update calls set heard_until = {store.ago(1)}")
    assert await calls.take_calls(here) == []
    assert await calls.renew_calls([renewed.call_id, new_call_id()], TTL_SECONDS) == {renewed.call_id}
    assert await calls.take_cancelled(here, include_expired=False) == [], "no caller could renew"
    assert await calls.take_cancelled(["con_other"], include_expired=True) == []
    assert await calls.take_cancelled(here, include_expired=True) == [expired.call_id]
    assert await calls.take_cancelled(here, include_expired=True) == []
    assert not await calls.save_answer(expired.call_id, node.connection_id, '{"result":1}')
    assert await calls.save_answer(renewed.call_id, node.connection_id, '{"result":1}')


async def test_uncollected_answers_and_expired_nodes_are_swept(
    nodes: NodeStore, calls: CallStore, store: Store
) -> None:
    node = new_node()
    await register(nodes, node)
    old, fresh = new_call(node), new_call(node)
    for call in (old, fresh):
        await calls.place_call(call)
    await store.sql(f"update calls set deadline = {store.ago(100)} where call_id = '{old.call_id}'")
    await calls.sweep(60)
    await nodes.sweep(60)
    assert [row["call_id"] for row in await store.sql("select call_id from calls")] == [fresh.call_id]
    assert len(await nodes.list_nodes(OWNER)) == 1


async def test_concurrent_unregister_and_place_leave_no_open_call(
    nodes: NodeStore, calls: CallStore, store: Store
) -> None:
    """Either the unregistration fails the call, or the call finds the node disconnected."""
    for _ in range(20):
        node = new_node()
        await register(nodes, node)
        some = [new_call(node) for _ in range(4)]
        placed, failed = await asyncio.gather(
            asyncio.gather(*(calls.place_call(call) for call in some)), nodes.unregister(node.connection_id)
        )
        assert sorted(failed) == sorted(
            call.call_id for call, there in zip(some, placed, strict=True) if there
        )
        await store.sql("delete from calls")


async def run_statement(connection: Any, name: str, **arguments: Any) -> list[Any]:
    """Run a statement of the store in the transaction of the test."""
    statement = {**named_sql.load("postgres", "nodes"), **named_sql.load("postgres", "calls")}[name]
    return await connection.fetch(statement.sql, *statement.arguments(arguments))


@ON_POSTGRES
@pytest.mark.parametrize("way", ["it leaves", "it connects again"])
async def test_ending_connection_waits_for_a_call_being_placed_and_fails_it(
    nodes: NodeStore, store: Store, way: str
) -> None:
    """Otherwise the call would be stored after the open calls failed, and wait for its deadline."""
    node = new_node()
    await register(nodes, node)
    call = new_call(node)
    async with other_connection(store) as other, other.transaction():
        assert await run_statement(
            other, "place_call", **{name: getattr(call, name) for name in NewCall.__slots__}
        )
        ending = asyncio.create_task(
            nodes.unregister(node.connection_id) if way == "it leaves" else register(nodes, new_node())
        )
        await wait_for_blocked_statement(other)
    assert await ending == [call.call_id]


@ON_POSTGRES
async def test_call_waits_for_an_ending_connection_and_is_not_placed(
    nodes: NodeStore, calls: CallStore, store: Store
) -> None:
    """Otherwise it would fail as if it might have run; now it is sent to the newer connection."""
    node = new_node()
    await register(nodes, node)
    async with other_connection(store) as other, other.transaction():
        await run_statement(other, "unregister_node", connection_id=node.connection_id)
        assert await run_statement(other, "fail_calls", target=node.connection_id) == []
        placing = asyncio.create_task(calls.place_call(new_call(node)))
        await wait_for_blocked_statement(other)
    assert not await placing
    assert await store.sql("select * from calls") == []


@pytest.mark.parametrize("status", [*CallStatus, "odd"])
async def test_database_accepts_the_states_of_a_call(
    nodes: NodeStore, calls: CallStore, store: Store, status: str
) -> None:
    """A call has an answer exactly if it is answered; the transition table has the same states."""
    node = new_node()
    await register(nodes, node)
    call = new_call(node)
    await calls.place_call(call)
    change = f"update calls set status = '{status}', answer = {{}} where call_id = '{call.call_id}'"
    is_known, is_over = status in CALL_MOVES, status in CALL_MOVES and not CALL_MOVES[CallStatus(status)]
    for answer, fits in (("null", is_known and not is_over), ("'{}'", is_known and is_over)):
        if fits:
            await store.sql(change.format(answer))
        else:
            with pytest.raises(CONSTRAINT_ERRORS):
                await store.sql(change.format(answer))


# --- tokens -------------------------------------------------------------------------------------------------


def new_token(
    kind: TokenKind = TokenKind.NODE, *, user: AccountId = OWNER, node_id: str | None = None, text: str = "s"
) -> NewToken:
    return NewToken(
        token_id=new_token_id(),
        account_id=user,
        kind=kind,
        user_id=UserId(user),
        role=Role.ADMIN,
        name="a name",
        node_id=node_id,
        digest=digest_of(text),
    )


async def test_token_is_found_by_its_digest_until_revoked(tokens: TokenStore, store: Store) -> None:
    new = new_token(node_id="laptop")
    made = await tokens.create(new)
    assert made is not None
    assert (made.token_id, made.account_id, made.kind, made.name, made.node_id) == (
        new.token_id,
        OWNER,
        TokenKind.NODE,
        "a name",
        "laptop",
    )
    found = await tokens.find_by_digest(digest_of("s"))
    assert found == await tokens.find_by_id(made.token_id) == principal_of(made, OWNER_MEMBER)
    assert await tokens.find_by_digest(digest_of("t")) is None
    other = await tokens.create(new_token(text="other"))
    assert other is not None
    revoked = await tokens.revoke(made.token_id)
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert await tokens.find_by_digest(digest_of("s")) is None
    assert await tokens.find_by_id(made.token_id) is None
    valid = await tokens.list_valid([made.token_id, other.token_id, "tok_x"])
    assert [principal.token_id for principal in valid] == [other.token_id]
    assert await tokens.revoke(made.token_id) is None
    assert await tokens.list_tokens(OWNER) == await tokens.list_tokens(None) == [revoked, other]
    assert "'s'" not in str(await store.sql("select * from tokens"))


@rule("RS-68")
async def test_token_of_a_node_is_bound_once(tokens: TokenStore) -> None:
    made = await tokens.create(new_token())
    person = await tokens.create(new_token(TokenKind.USER, text="person"))
    gone = await tokens.create(new_token(text="gone"))
    assert made is not None
    assert person is not None
    assert gone is not None
    await tokens.revoke(gone.token_id)
    assert await tokens.bind(made.token_id, "laptop") == replace(made, node_id="laptop")
    for token_id in (made.token_id, person.token_id, gone.token_id, "tok_x"):
        assert await tokens.bind(token_id, "desktop") is None
    bound = await tokens.find_by_id(made.token_id)
    assert bound is not None
    assert bound.only_node == "laptop"


@rule("RS-76")
async def test_node_is_of_who_has_a_valid_token_of_it_or_has_connected_it(
    nodes: NodeStore, tokens: TokenStore, store: Store
) -> None:
    made = await tokens.create(new_token(node_id="laptop"))
    assert made is not None
    await register(nodes, new_node("desktop"))
    others = UserId("mallory")
    for node_id, is_taken in (("laptop", True), ("desktop", True), ("phone", False)):
        assert await tokens.is_node_of_another(OWNER, node_id, others) is is_taken
        assert not await tokens.is_node_of_another(OWNER, node_id, UserId(OWNER))
        assert not await tokens.is_node_of_another(AccountId("mallory"), node_id, others)
    await tokens.revoke(made.token_id)
    assert not await tokens.is_node_of_another(OWNER, "laptop", others)
    await store.sql(f"update nodes set expires_at = {store.ago(1)}")
    assert not await tokens.is_node_of_another(OWNER, "desktop", others)


async def test_token_of_an_unknown_user_is_not_created(tokens: TokenStore, store: Store) -> None:
    assert await tokens.create(new_token(user=AccountId("nobody"))) is None
    mallory = await store.add_user("mallory")
    assert await tokens.create(new_token(user=mallory)) is not None
    assert await tokens.list_tokens(OWNER) == []
    assert len(await tokens.list_tokens(mallory)) == 1


async def test_only_a_node_token_can_name_a_node(tokens: TokenStore) -> None:
    with pytest.raises(CONSTRAINT_ERRORS):
        await tokens.create(new_token(TokenKind.USER, node_id="laptop"))
