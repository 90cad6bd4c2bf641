"""The handshake of the gateway: who connects, in which protocol, as what, and what it is offered."""

from typing import Any

from msgspec import Struct

from easel import __version__
from easel.core.stream.envelope import EVENT_TYPES, Stream
from easel.edges.methods import METHODS
from easel.errors import BadInput, WrongMode, WrongProtocol

PROTOCOL = 1
LONGEST_CLIENT_ID = 128
ENDED = "canvas.unsubscribed"  # tells that a subscription has come to its end

# What a connection can do beside the table of methods.
_ITS_OWN = ("connect", "canvas.subscribe", "canvas.unsubscribe")


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


def check_protocol(asked: Connect) -> None:
    if not asked.minProtocol <= PROTOCOL <= asked.maxProtocol:
        raise WrongProtocol(protocol=PROTOCOL, least=asked.minProtocol, most=asked.maxProtocol)


def check_client(client: ClientInfo) -> None:
    if client.mode == "node":
        raise WrongMode(mode="node", problem="tool nodes come with the next version.")
    if client.mode != "client":
        raise WrongMode(mode=client.mode[:50], problem="the mode is `client`.")
    if not client.id or not client.id.isprintable() or len(client.id) > LONGEST_CLIENT_ID:
        raise BadInput(problem=f"client.id is 1 to {LONGEST_CLIENT_ID} printable characters.")


def hello(connection_id: str) -> dict[str, Any]:
    """What is there, and nothing else."""
    events = [kind.name for kind in EVENT_TYPES.values() if kind.stream is Stream.VISUALS]
    return {
        "type": "hello-ok",
        "protocol": PROTOCOL,
        "server": {"version": __version__, "connectionId": connection_id},
        "features": {"methods": sorted([*_ITS_OWN, *METHODS]), "events": sorted([*events, ENDED])},
    }
