"""The handshake of the gateway: who connects, in which protocol, as what, and what it is offered."""

from typing import Any

from msgspec import Struct

from easel import __version__
from easel.core.principal import Principal, PrincipalKind
from easel.core.stream.envelope import EVENT_TYPES, Stream
from easel.edges.methods import METHODS
from easel.errors import BadInput, WrongMode, WrongProtocol

PROTOCOL = 1
MAX_CLIENT_ID_LENGTH = 128
ENDED = "canvas.unsubscribed"  # tells that a subscription has come to its end

# What a connection can do beside the table of methods.
_ITS_OWN = ("connect", "canvas.subscribe", "canvas.unsubscribe")

CLIENT, NODE = "client", "node"
RESULT, PROGRESS = "tool.result", "tool.progress"  # what a node says
INVOKE, CANCEL = "tool.invoke", "tool.cancel"  # what a node hears


class ClientInfo(Struct):
    id: str
    version: str = ""
    platform: str = ""
    mode: str = "client"


class Auth(Struct):
    token: str


class Connect(Struct):
    client: ClientInfo
    minProtocol: int = PROTOCOL  # noqa: N815 - the protocol's own words
    maxProtocol: int = PROTOCOL  # noqa: N815
    auth: Auth | None = None
    tools: Any = None  # of a node; read by the host


def check_protocol(asked: Connect) -> None:
    if not asked.minProtocol <= PROTOCOL <= asked.maxProtocol:
        raise WrongProtocol(protocol=PROTOCOL, least=asked.minProtocol, most=asked.maxProtocol)


def check_mode(asked: Connect, principal: Principal) -> None:
    """A node's token can only be a node; and a node is its own, or its user's."""
    match asked.client.mode:
        case "node" if principal.kind not in (PrincipalKind.NODE, PrincipalKind.USER):
            raise WrongMode(
                mode=NODE,
                problem="this token is of another kind; `easel token create --kind node` makes one.",
            )
        case "node" if not asked.tools:
            raise WrongMode(mode=NODE, problem="a node offers tools, and these are none.")
        case "client" if principal.kind is PrincipalKind.NODE:
            raise WrongMode(mode=CLIENT, problem="a node's token can only be a node.")
        case "node" | "client":
            pass
        case other:
            raise WrongMode(mode=other[:50], problem=f"the mode is `{CLIENT}` or `{NODE}`.")


def check_client(client: ClientInfo) -> None:
    if not client.id or not client.id.isprintable() or len(client.id) > MAX_CLIENT_ID_LENGTH:
        raise BadInput(problem=f"client.id is 1 to {MAX_CLIENT_ID_LENGTH} printable characters.")


def hello(connection_id: str) -> dict[str, Any]:
    """What is there, and nothing else."""
    events = [kind.name for kind in EVENT_TYPES.values() if kind.stream is Stream.VISUALS]
    return _hello(connection_id, [*_ITS_OWN, *METHODS], [*events, ENDED])


def hello_node(connection_id: str, limits: dict[str, Any]) -> dict[str, Any]:
    """What a node may say and will hear, and how much of it at once."""
    return {**_hello(connection_id, ["connect", RESULT, PROGRESS], [INVOKE, CANCEL]), "limits": limits}


def _hello(connection_id: str, methods: list[str], events: list[str]) -> dict[str, Any]:
    return {
        "type": "hello-ok",
        "protocol": PROTOCOL,
        "server": {"version": __version__, "connectionId": connection_id},
        "features": {"methods": sorted(methods), "events": sorted(events)},
    }
