"""The limits of the gateway that are settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    connections: int  # per instance
    stall_seconds: float  # a client that reads nothing for this long is disconnected
    frame_bytes: int
    result_bytes: int  # of a tool result that a node sends
