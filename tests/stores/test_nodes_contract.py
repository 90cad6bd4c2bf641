"""Tool nodes, calls across instances and tokens on every store: who is there by the database's clock, each call once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.token import NewToken, TokenKind, digest_of
from easel.core.tool.call import CALL_MOVES, LOST, Answer, CallStatus, NewCall
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import Node
from easel.ids import OWNER, CallId, UserId, new_call_id, new_connection_id, new_token_id
from easel.stores.postgres.nodes import SQL
from tests.requirements import rule
from tests.stores.harness import CONSTRAINT_ERRORS, Store, other_connection, wait_for_blocked_statement
from tests.stores.test_artifacts_contract import ON_POSTGRES

if TYPE_CHECKING:
    from easel.host.ports import NodeStore, TokenStore

LONG = 3600.0
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
def tokens(store: Store) -> TokenStore:
    return store.database.tokens


def a_node(node_id: str = "laptop", *, user: UserId = OWNER, instance: str = "ins_a") -> Node:
    tools = {tool.name: tool for tool in (BASH, READ)}
    return Node(
        user_id=user,
        node_id=node_id,
        connection_id=new_connection_id(),
        instance_id=instance,
        version="1",
        platform="linux",
        tools=tools,
    )


async def entered(nodes: NodeStore, node: Node, seconds: float = LONG, max_nodes: int = 100) -> list[CallId]:
    answer = await nodes.register(node, seconds=seconds, max_nodes=max_nodes)
    assert answer is not None
    return list(answer.lost_calls)


def a_call(node: Node, *, seconds: float = LONG, user: UserId = OWNER) -> NewCall:
    return NewCall(
        new_call_id(),
        user,
        node.connection_id,
        "tool.invoke",
        '{"tool":"Bash","args":{"command":"ls"}}',
        seconds,
        caller_ttl_seconds=LONG,
    )


async def run_out(store: Store, node: Node) -> None:
    """Its instance did not renew it."""
    await store.sql(
        f"update nodes set expires_at = {store.ago(1)} where connection_id = '{node.connection_id}'"
    )


# --- who is there -----------------------------------------------------------------------------------------------------


async def test_a_node_is_read_back_as_it_entered(nodes: NodeStore) -> None:
    node = a_node()
    entered = await nodes.register(node, seconds=LONG, max_nodes=1)
    assert entered is not None
    [found] = await nodes.list_nodes(OWNER)
    assert found == Node(
        **{**{name: getattr(node, name) for name in Node.__slots__}, "connected_at": entered.connected_at}
    )
    assert list(found.tools) == [BASH.name, READ.name]


async def test_a_user_sees_no_other_users_nodes(nodes: NodeStore, store: Store) -> None:
    other = await store.add_user("mallory")
    await entered(nodes, a_node())
    await entered(nodes, a_node(user=other))
    assert [node.user_id for node in await nodes.list_nodes(other)] == [other]
    assert await nodes.list_nodes(UserId("nobody")) == []


async def test_nodes_are_listed_by_id_and_those_of_a_dead_instance_run_out(
    nodes: NodeStore, store: Store
) -> None:
    some = {name: a_node(name) for name in ("b", "a", "Z", "c")}
    for node in some.values():
        await entered(nodes, node)
    assert [node.node_id for node in await nodes.list_nodes(OWNER)] == ["Z", "a", "b", "c"]
    await run_out(store, some["b"])
    assert [node.node_id for node in await nodes.list_nodes(OWNER)] == ["Z", "a", "c"]
    assert await nodes.renew([some["b"].connection_id], LONG) == {some["b"].connection_id}, (
        "late, and nobody took its place"
    )
    assert len(await nodes.list_nodes(OWNER)) == 4


async def test_a_node_that_connects_again_replaces_its_older_connection(nodes: NodeStore) -> None:
    older, newer = a_node(), a_node(instance="ins_b")
    await entered(nodes, older)
    await entered(nodes, newer)
    [found] = await nodes.list_nodes(OWNER)
    assert (found.connection_id, found.instance_id) == (newer.connection_id, "ins_b")
    assert await nodes.renew([older.connection_id, newer.connection_id], LONG) == {newer.connection_id}
    await nodes.unregister(older.connection_id)
    assert len(await nodes.list_nodes(OWNER)) == 1, "the late end of the older one takes nothing away"
    await nodes.unregister(newer.connection_id)
    assert await nodes.list_nodes(OWNER) == []


async def test_a_row_that_was_swept_comes_back_unless_another_connection_has_its_place(
    nodes: NodeStore,
) -> None:
    node = a_node()
    first = await nodes.register(node, seconds=LONG, max_nodes=1)
    assert first is not None
    await nodes.sweep(-2 * LONG)
    assert await nodes.renew([node.connection_id], LONG) == set()
    assert await nodes.register_again(node, first.connected_at, seconds=LONG)
    assert [found.connected_at for found in await nodes.list_nodes(OWNER)] == [first.connected_at]
    await nodes.unregister(node.connection_id)
    await entered(nodes, a_node())
    assert not await nodes.register_again(node, first.connected_at, seconds=LONG)


async def test_a_user_has_so_many_nodes_and_no_more(nodes: NodeStore, store: Store) -> None:
    first, second = a_node("first"), a_node("second")
    await entered(nodes, first, max_nodes=2)
    await entered(nodes, second, max_nodes=2)
    assert await nodes.register(a_node("third"), seconds=LONG, max_nodes=2) is None
    await entered(nodes, a_node("second"), max_nodes=2)  # coming back is not coming
    await run_out(store, first)
    await entered(nodes, a_node("third"), max_nodes=2)


async def test_of_many_connections_of_one_node_the_last_has_the_row(nodes: NodeStore) -> None:
    some = [a_node() for _ in range(10)]
    await asyncio.gather(*(entered(nodes, node) for node in some))
    [found] = await nodes.list_nodes(OWNER)
    assert await nodes.renew([node.connection_id for node in some], LONG) == {found.connection_id}


# --- calls ------------------------------------------------------------------------------------------------------------


@rule("CV-03")
async def test_a_call_is_placed_taken_answered_and_fetched_once_each(nodes: NodeStore, store: Store) -> None:
    node = a_node()
    await entered(nodes, node)
    call = a_call(node)
    assert await nodes.place_call(call)
    assert await nodes.collect_answers([call.call_id]) == {}
    assert await nodes.take_calls(["con_other"]) == []
    [taken] = await nodes.take_calls([node.connection_id])
    assert (taken.call_id, taken.user_id, taken.target, taken.method) == (
        call.call_id,
        OWNER,
        node.connection_id,
        "tool.invoke",
    )
    assert msgspec.json.decode(taken.params) == {"tool": "Bash", "args": {"command": "ls"}}
    assert LONG - 60 < taken.seconds_left <= LONG
    assert await nodes.take_calls([node.connection_id]) == []
    assert not await nodes.save_answer(call.call_id, "con_other", '{"result":0}'), (
        "only whoever has taken it answers"
    )
    assert await nodes.save_answer(call.call_id, node.connection_id, '{"result":1}')
    assert not await nodes.save_answer(call.call_id, node.connection_id, '{"result":2}')
    [stored] = (await nodes.collect_answers([call.call_id])).values()
    assert stored is not None
    assert Answer.from_stored(msgspec.json.decode(stored)) == Answer(1)
    assert await nodes.collect_answers([call.call_id]) == {}
    assert await store.sql("select * from calls") == []


async def test_many_that_take_at_once_share_the_calls_out(nodes: NodeStore) -> None:
    node = a_node()
    await entered(nodes, node)
    calls = [a_call(node) for _ in range(20)]
    await asyncio.gather(*(nodes.place_call(call) for call in calls))
    taken = await asyncio.gather(*(nodes.take_calls([node.connection_id]) for _ in range(8)))
    assert sorted(one.call_id for some in taken for one in some) == sorted(call.call_id for call in calls)


async def test_nothing_is_asked_of_a_node_that_is_not_there(nodes: NodeStore, store: Store) -> None:
    node, stranger = a_node(), await store.add_user("mallory")
    assert not await nodes.place_call(a_call(node))
    await entered(nodes, node)
    assert not await nodes.place_call(a_call(node, user=stranger))
    await run_out(store, node)
    assert not await nodes.place_call(a_call(node))
    await nodes.unregister(node.connection_id)
    assert not await nodes.place_call(a_call(node))
    assert await store.sql("select * from calls") == []


@pytest.mark.parametrize("is_taken", [False, True])
@pytest.mark.parametrize("way", ["it leaves", "it connects again"])
async def test_calls_fail_at_once_when_their_connection_ends(
    nodes: NodeStore, way: str, is_taken: bool
) -> None:
    node, other = a_node(), a_node("other")
    for one in (node, other):
        await entered(nodes, one)
    call, of_other = a_call(node), a_call(other)
    assert all([await nodes.place_call(call), await nodes.place_call(of_other)])
    if is_taken:
        assert len(await nodes.take_calls([node.connection_id])) == 1
    lost = await (nodes.unregister(node.connection_id) if way == "it leaves" else entered(nodes, a_node()))
    assert lost == [call.call_id]
    [(found, stored)] = (await nodes.collect_answers([call.call_id, of_other.call_id])).items()
    assert found == call.call_id
    assert Answer.from_stored(msgspec.json.decode(stored or "")) == LOST


async def test_an_answer_that_is_there_is_given_though_its_node_has_gone_since(nodes: NodeStore) -> None:
    node = a_node()
    await entered(nodes, node)
    call = a_call(node)
    await nodes.place_call(call)
    await nodes.take_calls([node.connection_id])
    await nodes.save_answer(call.call_id, node.connection_id, '{"result":"in time"}')
    assert await nodes.unregister(node.connection_id) == []
    [stored] = (await nodes.collect_answers([call.call_id])).values()
    assert msgspec.json.decode(stored or "") == {"result": "in time"}


async def test_calls_of_an_instance_that_died_are_given_up_when_its_nodes_run_out(
    nodes: NodeStore, store: Store
) -> None:
    node = a_node()
    await entered(nodes, node)
    call = a_call(node)
    await nodes.place_call(call)
    await nodes.take_calls([node.connection_id])
    assert await nodes.collect_answers([call.call_id]) == {}
    await run_out(store, node)
    assert await nodes.collect_answers([call.call_id]) == {call.call_id: None}
    assert not await nodes.save_answer(call.call_id, node.connection_id, '{"result":1}'), (
        "it was not dead after all, and is too late"
    )


async def test_a_call_that_nobody_waits_for_is_not_begun_and_not_answered(
    nodes: NodeStore, store: Store
) -> None:
    node = a_node()
    await entered(nodes, node)
    late = a_call(node, seconds=-1)
    await nodes.place_call(late)
    assert await nodes.take_calls([node.connection_id]) == []
    slow = a_call(node)
    await nodes.place_call(slow)
    await nodes.take_calls([node.connection_id])
    await store.sql(f"update calls set deadline = {store.ago(1)} where call_id = '{slow.call_id}'")
    assert not await nodes.save_answer(slow.call_id, node.connection_id, '{"result":1}')


async def test_a_cancelled_call_is_dropped_before_it_began_and_stopped_after(
    nodes: NodeStore, store: Store
) -> None:
    node, mallory = a_node(), await store.add_user("mallory")
    await entered(nodes, node)
    waiting, under_way = a_call(node), a_call(node)
    await nodes.place_call(under_way)
    await nodes.take_calls([node.connection_id])
    await nodes.place_call(waiting)
    assert await nodes.cancel_call(mallory, under_way.call_id) is None
    assert await nodes.take_cancelled([node.connection_id], include_expired=True) == [], (
        "and nobody cancels what is another's"
    )
    assert await nodes.cancel_call(OWNER, waiting.call_id) is None
    assert await nodes.take_calls([node.connection_id]) == []
    assert await nodes.cancel_call(OWNER, under_way.call_id) == node.connection_id
    assert not await nodes.save_answer(under_way.call_id, node.connection_id, '{"result":1}')
    assert await nodes.take_cancelled(["con_other"], include_expired=True) == []
    assert await nodes.take_cancelled([node.connection_id], include_expired=True) == [under_way.call_id]
    assert await nodes.take_cancelled([node.connection_id], include_expired=True) == []
    assert await store.sql("select * from calls") == []


@rule("RX-34")
async def test_a_call_whose_caller_is_not_heard_of_is_not_begun_and_is_stopped(
    nodes: NodeStore, store: Store
) -> None:
    """Whoever made it has died: what it asked for does not go on for nobody until its deadline."""
    node = a_node()
    await entered(nodes, node)
    here = [node.connection_id]
    heard, unheard, waiting = a_call(node), a_call(node), a_call(node)
    for call in (heard, unheard):
        await nodes.place_call(call)
    assert len(await nodes.take_calls(here)) == 2
    await nodes.place_call(waiting)
    await store.sql(f"update calls set heard_until = {store.ago(1)}")
    assert await nodes.take_calls(here) == []
    assert await nodes.renew_calls([heard.call_id, new_call_id()], LONG) == {heard.call_id}
    assert await nodes.take_cancelled(here, include_expired=False) == [], "nobody could be heard of"
    assert await nodes.take_cancelled(["con_other"], include_expired=True) == []
    assert await nodes.take_cancelled(here, include_expired=True) == [unheard.call_id]
    assert await nodes.take_cancelled(here, include_expired=True) == []
    assert not await nodes.save_answer(unheard.call_id, node.connection_id, '{"result":1}')
    assert await nodes.save_answer(heard.call_id, node.connection_id, '{"result":1}')


async def test_what_nobody_fetched_is_swept(nodes: NodeStore, store: Store) -> None:
    node = a_node()
    await entered(nodes, node)
    old, fresh = a_call(node), a_call(node)
    for call in (old, fresh):
        await nodes.place_call(call)
    await store.sql(f"update calls set deadline = {store.ago(100)} where call_id = '{old.call_id}'")
    await nodes.sweep(60)
    assert [row["call_id"] for row in await store.sql("select call_id from calls")] == [fresh.call_id]
    assert len(await nodes.list_nodes(OWNER)) == 1


async def test_leaving_and_placing_at_once_leaves_no_call_behind(nodes: NodeStore, store: Store) -> None:
    """Whoever removes the node sees the call, or whoever places the call sees that the node is gone."""
    for _ in range(20):
        node = a_node()
        await entered(nodes, node)
        calls = [a_call(node) for _ in range(4)]
        placed, lost = await asyncio.gather(
            asyncio.gather(*(nodes.place_call(call) for call in calls)), nodes.unregister(node.connection_id)
        )
        assert sorted(lost) == sorted(
            call.call_id for call, there in zip(calls, placed, strict=True) if there
        )
        await store.sql("delete from calls")


async def run_statement(connection: Any, name: str, **arguments: Any) -> list[Any]:
    """Run a statement of the store in the transaction of the test."""
    return await connection.fetch(SQL[name].sql, *SQL[name].arguments(arguments))


@ON_POSTGRES
@pytest.mark.parametrize("way", ["it leaves", "it connects again"])
async def test_a_connection_that_ends_waits_for_the_call_that_is_being_placed_and_loses_it(
    nodes: NodeStore, store: Store, way: str
) -> None:
    """Else the call would be stored after the look at what is to be lost: nobody would ring for it, and its caller would learn of it late."""
    node = a_node()
    await entered(nodes, node)
    call = a_call(node)
    async with other_connection(store) as other, other.transaction():
        assert await run_statement(
            other, "place_call", **{name: getattr(call, name) for name in NewCall.__slots__}
        )
        ending = asyncio.create_task(
            nodes.unregister(node.connection_id) if way == "it leaves" else entered(nodes, a_node())
        )
        await wait_for_blocked_statement(other)
    assert await ending == [call.call_id]


@ON_POSTGRES
async def test_a_call_waits_for_the_connection_that_is_ending_and_is_not_placed(
    nodes: NodeStore, store: Store
) -> None:
    """Else it would be told as lost, as if it might have been done; so it is asked of the node by its newer connection."""
    node = a_node()
    await entered(nodes, node)
    async with other_connection(store) as other, other.transaction():
        await run_statement(other, "unregister_node", connection_id=node.connection_id)
        assert await run_statement(other, "fail_calls", target=node.connection_id) == []
        placing = asyncio.create_task(nodes.place_call(a_call(node)))
        await wait_for_blocked_statement(other)
    assert not await placing
    assert await store.sql("select * from calls") == []


@pytest.mark.parametrize("status", [*CallStatus, "odd"])
async def test_the_database_knows_the_states_of_a_call(nodes: NodeStore, store: Store, status: str) -> None:
    """A call has an answer exactly when it is answered; the table of moves has the same states."""
    node = a_node()
    await entered(nodes, node)
    call = a_call(node)
    await nodes.place_call(call)
    change = f"update calls set status = '{status}', answer = {{}} where call_id = '{call.call_id}'"
    is_known, is_over = status in CALL_MOVES, status in CALL_MOVES and not CALL_MOVES[CallStatus(status)]
    for answer, fits in (("null", is_known and not is_over), ("'{}'", is_known and is_over)):
        if fits:
            await store.sql(change.format(answer))
        else:
            with pytest.raises(CONSTRAINT_ERRORS):
                await store.sql(change.format(answer))


# --- tokens -----------------------------------------------------------------------------------------------------------


def a_token(
    kind: TokenKind = TokenKind.NODE, *, user: UserId = OWNER, node_id: str | None = None, shown: str = "s"
) -> NewToken:
    return NewToken(
        token_id=new_token_id(),
        user_id=user,
        kind=kind,
        name="a name",
        node_id=node_id,
        digest=digest_of(shown),
    )


async def test_a_token_is_found_by_its_digest_until_it_is_revoked(tokens: TokenStore, store: Store) -> None:
    new = a_token(node_id="laptop")
    made = await tokens.create(new)
    assert made is not None
    assert (made.token_id, made.user_id, made.kind, made.name, made.node_id) == (
        new.token_id,
        OWNER,
        TokenKind.NODE,
        "a name",
        "laptop",
    )
    assert await tokens.find_by_digest(digest_of("s")) == await tokens.find_by_id(made.token_id) == made
    assert await tokens.find_by_digest(digest_of("t")) is None
    other = await tokens.create(a_token(shown="other"))
    assert other is not None
    revoked = await tokens.revoke(made.token_id)
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert await tokens.find_by_digest(digest_of("s")) is None
    assert await tokens.find_by_id(made.token_id) is None
    assert await tokens.filter_valid([made.token_id, other.token_id, "tok_x"]) == {other.token_id}
    assert await tokens.revoke(made.token_id) is None
    assert await tokens.list_tokens(OWNER) == await tokens.list_tokens(None) == [revoked, other]
    assert "'s'" not in str(await store.sql("select * from tokens"))


async def test_a_token_belongs_to_a_user_who_is_there(tokens: TokenStore, store: Store) -> None:
    assert await tokens.create(a_token(user=UserId("nobody"))) is None
    mallory = await store.add_user("mallory")
    assert await tokens.create(a_token(user=mallory)) is not None
    assert await tokens.list_tokens(OWNER) == []
    assert len(await tokens.list_tokens(mallory)) == 1


async def test_only_a_nodes_token_is_for_one_node(tokens: TokenStore) -> None:
    with pytest.raises(CONSTRAINT_ERRORS):
        await tokens.create(a_token(TokenKind.USER, node_id="laptop"))
