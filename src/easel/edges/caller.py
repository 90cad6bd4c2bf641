"""The caller of a method of the gateway."""

from dataclasses import dataclass

from easel.core.principal import Principal
from easel.edges.delivery import Deliveries
from easel.host.canvases.views import NO_CONNECTION
from easel.host.services import Services


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a method: its principal, client and connection, and the services to call.

    `deliveries` are those of the connection; a request over HTTP has none.
    """

    services: Services
    principal: Principal
    client_id: str = "http"
    connection_id: str = NO_CONNECTION
    deliveries: Deliveries | None = None
