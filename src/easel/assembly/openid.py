"""Open the sign-in by OpenID Connect, if the settings describe a provider."""

from easel.assembly.people import LOGICAL
from easel.assembly.resources import Resources
from easel.host.auth.throttle import SignInThrottle
from easel.host.openid.sign_in import OpenIdSignIn
from easel.host.people.people import OnDeparture


def build_openid(
    resources: Resources, throttle: SignInThrottle, on_departure: OnDeparture
) -> OpenIdSignIn | None:
    """Return the sign-in by OpenID Connect, None if no provider is described."""
    settings, database = resources.settings, resources.database
    if (provider := settings.openid) is None:
        return None
    from easel.oauth.http import ProviderHttp
    from easel.oauth.openid import HttpOpenIdClient

    resources.audit.add_secret(*filter(None, (provider.client_secret,)))
    allows_loopback = not settings.is_prod
    return OpenIdSignIn(
        provider,
        public_url=settings.public_url,
        allows_loopback=allows_loopback,
        is_isolated=settings.sandbox_mode != LOGICAL,
        flows=database.sign_in_flows,
        identities=database.identities,
        client=HttpOpenIdClient(
            provider, ProviderHttp(allows_loopback=allows_loopback), allows_loopback=allows_loopback
        ),
        throttle=throttle,
        audit=resources.audit,
        on_departure=on_departure,
    )
