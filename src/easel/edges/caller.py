"""The caller of a method of the gateway."""

from dataclasses import dataclass

from easel.core.principal import Principal
from easel.host.canvases.views import NO_CONNECTION
from easel.host.services import Services


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a method: its principal, client and connection, and the services to call."""

    services: Services
    principal: Principal
    client_id: str = "http"
    connection_id: str = NO_CONNECTION
