"""Open the connections of accounts to OAuth providers, if the settings describe any."""

import contextlib
from collections.abc import AsyncGenerator

from easel.assembly.models import open_cipher
from easel.assembly.resources import Resources
from easel.core.oauth.flow import CallbackRule
from easel.host.oauth.connections import Connections
from easel.host.oauth.tokens import AccessTokens
from easel.ids import new_revision_id


@contextlib.asynccontextmanager
async def open_connections(resources: Resources) -> AsyncGenerator[Connections | None]:
    """Yield the connections, None if no provider is described; at the end, finish requests in flight."""
    settings, database, audit = resources.settings, resources.database, resources.audit
    if not settings.oauth:
        yield None
        return
    from easel.oauth.client import HttpOAuthClient
    from easel.oauth.http import ProviderHttp

    cipher = open_cipher(settings, "auth")
    http = ProviderHttp(allows_loopback=not settings.is_prod)
    client = HttpOAuthClient(http)
    tokens = AccessTokens(
        database.connections,
        cipher,
        client,
        audit,
        claim_seconds=settings.claim_seconds,
        new_id=new_revision_id,
    )
    try:
        yield Connections(
            settings.oauth,
            CallbackRule(settings.public_url, allows_loopback=not settings.is_prod),
            flows=database.oauth_flows,
            store=database.connections,
            cipher=cipher,
            client=client,
            tokens=tokens,
            audit=audit,
            new_id=new_revision_id,
        )
    finally:
        await tokens.close()
        await http.close()
