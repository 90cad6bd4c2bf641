"""The handshake of the gateway: protocol version, mode, client, and the `hello-ok` response."""

from collections.abc import Iterable

from easel import __version__
from easel.core.principal import Principal, PrincipalKind, Role
from easel.core.stream.envelope import EVENT_TYPES, Stream
from easel.edges.gateway.frames import CANCEL, ENDED, INVOKE
from easel.edges.methods import CONNECTION_METHODS, METHODS
from easel.edges.params import PROTOCOL, Connect
from easel.edges.results import Features, GatewayNodeLimits, Hello, ServerInfo
from easel.errors import WrongMode, WrongProtocol

CLIENT, NODE = "client", "node"
RESULT, PROGRESS = "tool.result", "tool.progress"  # sent by a node


def check_protocol(params: Connect) -> None:
    if not params.minProtocol <= PROTOCOL <= params.maxProtocol:
        raise WrongProtocol(protocol=PROTOCOL, least=params.minProtocol, most=params.maxProtocol)


def check_mode(params: Connect, principal: Principal) -> None:
    """Raise `WrongMode` if the mode is unknown or not for this principal, or if a node offers no tools."""
    match params.client.mode:
        case "node" if principal.kind not in (PrincipalKind.NODE, PrincipalKind.USER):
            raise WrongMode(
                mode=NODE,
                problem="the token must be of kind node; `easel token create --kind node` creates one.",
            )
        case "node" if principal.kind is PrincipalKind.USER and principal.role is Role.VIEWER:
            raise WrongMode(mode=NODE, problem="a viewer of an account cannot offer tools in it.")
        case "node" if not params.tools:
            raise WrongMode(mode=NODE, problem="tools must not be empty.")
        case "client" if principal.kind is PrincipalKind.NODE:
            raise WrongMode(mode=CLIENT, problem="a token of kind node can only connect in node mode.")
        case "node" | "client":
            pass
        case other:
            raise WrongMode(mode=other[:50], problem=f"the mode must be `{CLIENT}` or `{NODE}`.")


def hello(connection_id: str) -> Hello:
    """Return the `hello-ok` response to a client, with all methods and events of the gateway."""
    events = [kind.name for kind in EVENT_TYPES.values() if kind.stream is Stream.VISUALS]
    methods = (METHODS.keys() | CONNECTION_METHODS.keys()) - {RESULT, PROGRESS}
    return _hello(connection_id, methods, [*events, ENDED])


def hello_node(connection_id: str, limits: GatewayNodeLimits) -> Hello:
    """Return the `hello-ok` response to a node, with the limits on its frames and results."""
    answer = _hello(connection_id, ["connect", RESULT, PROGRESS], [INVOKE, CANCEL])
    answer.limits = limits
    return answer


def _hello(connection_id: str, methods: Iterable[str], events: list[str]) -> Hello:
    server = ServerInfo(__version__, connection_id)
    return Hello(PROTOCOL, server, Features(sorted(methods), sorted(events)))
