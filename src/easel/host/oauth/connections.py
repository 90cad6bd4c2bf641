"""The connections of accounts to OAuth providers: started, finished by the callback, listed and removed.

Owns who may do it, what binds a callback to the person and the browser that began, and the audit records. A
flow is in the database, so any instance finishes it. No method returns a token but `AccessTokens.get`, which
the choice of a model uses. RX-39, RX-40, RX-44
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from easel.core.model.choice import ModelChoice
from easel.core.oauth.connection import ConnectionInfo, NewConnection
from easel.core.oauth.flow import FLOW_SECONDS, CallbackRule, Flow
from easel.core.oauth.provider import OAuthProvider
from easel.core.principal import ANONYMOUS, Principal
from easel.errors import BadInput, Forbidden, HostError, NotFound, NotSignedIn
from easel.host.audit.audit import Audit
from easel.host.oauth.tokens import AccessTokens, encode_tokens
from easel.host.ports import ConnectionStore, OAuthClient, OAuthFlowStore, SecretCipher
from easel.ids import AccountId

VERIFIER_BYTES = 48  # 64 characters
STATE_BYTES = 32
MAX_STATE_LENGTH = 200
MAX_CODE_LENGTH = 4_096
_USED = (
    "This link was used already, is older than 10 minutes, or belongs to another browser. Open Easel in this "
    "browser and connect the provider again."
)


@dataclass(frozen=True, slots=True)
class Callback:
    """A request to the address of a callback. `host` is its host name with the port."""

    path: str
    host: str
    state: str = field(repr=False)
    code: str | None = field(repr=False)
    error: str | None
    issuer: str | None


@dataclass(frozen=True, slots=True)
class ProviderState:
    """A provider that this host describes, and the account's connection to it."""

    provider: OAuthProvider
    connection: ConnectionInfo | None


class Connections:
    def __init__(
        self,
        providers: Sequence[OAuthProvider],
        rule: CallbackRule,
        *,
        flows: OAuthFlowStore,
        store: ConnectionStore,
        cipher: SecretCipher,
        client: OAuthClient,
        tokens: AccessTokens,
        audit: Audit,
        new_id: Callable[[], str],
    ) -> None:
        self._providers: Mapping[str, OAuthProvider] = {provider.name: provider for provider in providers}
        self._rule = rule
        self._flows = flows
        self._store = store
        self._cipher = cipher
        self._client = client
        self._tokens = tokens
        self._audit = audit
        self._new_id = new_id

    # -- a person --------------------------------------------------------------------------------------------

    async def list_states(self, principal: Principal) -> list[ProviderState]:
        """Return every provider with the account's connection to it, without tokens."""
        stored = {info.provider: info for info in await self._store.list_connections(principal.account_id)}
        return [ProviderState(each, stored.get(name)) for name, each in self._providers.items()]

    async def start(self, principal: Principal, name: str, origin: str) -> str:
        """Begin to connect a provider. Returns the address at which the provider asks the person. RX-39"""
        provider, user_id = self._find(name), principal.user_id
        if user_id is None:
            raise Forbidden(problem="only a person can connect a provider.")
        redirect_uri = self._rule.redirect_uri(name, origin)
        flow = Flow(
            state=secrets.token_urlsafe(STATE_BYTES),
            code_verifier=secrets.token_urlsafe(VERIFIER_BYTES),
            provider=name,
            account_id=principal.account_id,
            user_id=user_id,
            sign_in_id=principal.sign_in_id,
            redirect_uri=redirect_uri,
            origin=origin,
        )
        if not await self._flows.start(flow, FLOW_SECONDS):
            raise NotFound(what="account", id=principal.account_id)
        await self._audit.record(principal, "oauth.started", subject=name)
        return self._client.authorize_url(
            provider, redirect_uri=redirect_uri, state=flow.state, code_verifier=flow.code_verifier
        )

    async def remove(self, principal: Principal, name: str) -> None:
        """Delete the connection of the account; a refresh in flight does not restore it. Raises NotFound."""
        if not await self._store.delete(principal.account_id, name):
            raise NotFound(what="connection", id=name[:100])
        await self._audit.record(principal, "oauth.removed", subject=name)

    # -- the callback ----------------------------------------------------------------------------------------

    async def find_other_origin(self, callback: Callback) -> str | None:
        """Return the origin where the flow began, if the browser must go there first. Consumes nothing."""
        if len(callback.state) > MAX_STATE_LENGTH:
            return None
        flow = await self._flows.find(callback.state)
        return None if flow is None else self._rule.other_origin(flow, callback.host)

    async def finish(self, principal: Principal | None, callback: Callback) -> str:
        """Exchange the code of a callback and store the tokens. Returns the name of the provider.

        Raises `BadInput`, `NotSignedIn`, or the error of the provider.
        """
        try:
            return await self._finish(principal, callback)
        except HostError as problem:
            details = {"error": problem.code, "problem": problem.message}
            self._audit.record_throttled(principal or ANONYMOUS, "oauth.failed", details=details)
            raise

    async def _finish(self, principal: Principal | None, callback: Callback) -> str:
        if principal is None or principal.user_id is None:
            raise NotSignedIn.with_message(
                "Sign in to Easel in this browser, and connect the provider again."
            )
        if not 0 < len(callback.state) <= MAX_STATE_LENGTH:
            raise BadInput(problem=_USED)
        flow = await self._flows.consume(callback.state, principal.user_id, principal.sign_in_id)
        if flow is None:
            raise BadInput(problem=_USED)
        provider = self._find(flow.provider)
        if not self._rule.accepts(flow, callback.path):
            raise BadInput(
                problem=f"{provider.name} must call back {flow.redirect_uri} and no other address."
            )
        if not provider.is_issuer(callback.issuer):
            raise BadInput(problem=f"The answer does not come from {provider.name}; connect it again.")
        if callback.error is not None or not callback.code or len(callback.code) > MAX_CODE_LENGTH:
            raise BadInput(problem=_describe_refusal(provider.name, callback.error))
        await self._exchange(principal, provider, flow, callback.code)
        return provider.name

    async def _exchange(self, principal: Principal, provider: OAuthProvider, flow: Flow, code: str) -> None:
        tokens = await self._client.exchange(
            provider, code=code, redirect_uri=flow.redirect_uri, code_verifier=flow.code_verifier
        )
        new = NewConnection(
            account_id=flow.account_id,
            provider=provider.name,
            user_id=flow.user_id,
            scopes=provider.scopes if tokens.scopes is None else tokens.scopes,
            revision=self._new_id(),
            secret=self._cipher.encrypt(flow.account_id, provider.name, encode_tokens(tokens)),
            usable_seconds=tokens.usable_seconds,
        )
        if not await self._store.connect(new):
            raise Forbidden(problem=f"only an admin of {flow.account_id} can connect {provider.name} to it.")
        actor = replace(principal, account_id=flow.account_id)
        await self._audit.record(actor, "oauth.connected", subject=provider.name)

    # -- the choice of a model -------------------------------------------------------------------------------

    async def find_key(self, account_id: AccountId, choice: ModelChoice) -> str | None:
        """Return the access token that the account has for the server of this model.

        Raises `ModelFailed` if the connection must be renewed by a person.
        """
        for provider in self._providers.values():
            if provider.serves(choice) and (token := await self._tokens.get(account_id, provider)):
                return token
        return None

    def find_provider(self, choice: ModelChoice) -> str | None:
        """Return the name of a provider that an account can connect for the server of this model."""
        return next((name for name, each in self._providers.items() if each.serves(choice)), None)

    def _find(self, name: str) -> OAuthProvider:
        if (provider := self._providers.get(name)) is None:
            raise NotFound(what="provider", id=name[:100])
        return provider


def _describe_refusal(provider: str, error: str | None) -> str:
    if error == "access_denied":
        return f"{provider} was not connected: the access was not granted."
    shown = f": {error}" if error and error.isascii() and error.replace("_", "").isalpha() else ""
    return f"{provider} was not connected, because it sent no code{shown[:70]}. Connect it again."
