"""The limits of the gateway."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    connections: int  # per instance
    requests: int  # concurrent requests per connection
    subscriptions: int  # per connection
    connect_seconds: float  # time in which `connect` must arrive
    stall_seconds: float  # a client that reads nothing for this long is disconnected
    node_heartbeat_seconds: float  # interval of pings to a node, and the time in which a pong must arrive
    frame_bytes: int
    anonymous_bytes: int  # before `connect`, if the upgrade request had no valid token
    result_bytes: int  # of a tool result that a node sends
