"""The resources of one process: database, blobs, artifacts and audit trail, opened and closed in order.

Does not know the services that are built on them.
"""

import contextlib
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from easel.assembly.storage import migrated_database, open_blobs
from easel.host.artifacts.artifacts import Artifacts
from easel.host.audit.audit import Audit
from easel.host.ports import BlobStore
from easel.host.usage import AccountBudget
from easel.settings import Settings

if TYPE_CHECKING:
    from easel.assembly.storage import Database


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that all services of one process share."""

    settings: Settings
    database: "Database"
    blobs: BlobStore
    artifacts: Artifacts
    audit: Audit
    signing_key: str = field(repr=False)


def account_budget(settings: Settings, database: "Database") -> AccountBudget | None:
    """Return the budgets of accounts, None if there are no limits for them."""
    limits = settings.limits_of_account
    return AccountBudget(limits, database.usage) if limits.has_totals else None


@contextlib.asynccontextmanager
async def open_resources(settings: Settings) -> AsyncGenerator[Resources]:
    """Open the resources. At the end the audit trail is flushed before the database is closed."""
    async with migrated_database(settings) as database:
        password = urlsplit(settings.database_url).password
        signing_key = settings.secret_key or await database.sign_ins.signing_key(secrets.token_urlsafe(32))
        clients = [provider.client_secret for provider in settings.oauth]
        known = filter(
            None, (settings.token, password, signing_key, settings.api_key, *settings.earlier_keys, *clients)
        )
        audit = Audit(database.audit, secrets=known, slow_seconds=settings.slow_seconds)
        blobs = open_blobs(settings)
        artifacts = Artifacts(
            database.artifacts,
            blobs,
            max_bytes=settings.max_artifact_bytes,
            grace_seconds=settings.artifact_days * 86_400,
            budget=account_budget(settings, database),
        )
        try:
            yield Resources(settings, database, blobs, artifacts, audit, signing_key)
        finally:
            await audit.close()
