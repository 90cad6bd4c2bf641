"""The limits of the gateway."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    connections: int  # of this instance
    requests: int  # concurrent requests of one connection
    subscriptions: int  # of one connection
    connect_seconds: float  # in which `connect` must arrive
    stall_seconds: float  # after which a client that reads nothing is disconnected
    node_heartbeat_seconds: float  # ping interval of a node, and the time in which it must answer
    frame_bytes: int
    result_bytes: int
