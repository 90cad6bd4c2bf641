"""Build the services of people and teams: for edges, and for commands that run beside a running Easel."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from easel.assembly.storage import open_admin_store
from easel.errors import BadSettings
from easel.host.audit.audit import Audit
from easel.host.auth.throttle import SignInThrottle
from easel.host.auth.tokens import OPERATOR as COMMAND_LINE
from easel.host.people.hashes import PasswordHashes
from easel.host.people.invitations import Invitations, invitation_link
from easel.host.people.people import OnDeparture, People
from easel.host.people.teams import Teams
from easel.host.ports import PeopleStore
from easel.settings import Settings

if TYPE_CHECKING:
    from easel.assembly.storage import Database

LOGICAL = "logical"

__all__ = [
    "COMMAND_LINE",
    "PeopleServices",
    "build_people",
    "check_isolation",
    "invitation_link",
    "open_people_admin",
]


@dataclass(frozen=True, slots=True)
class PeopleServices:
    people: People
    teams: Teams
    invitations: Invitations


def build_people(
    settings: Settings,
    store: PeopleStore,
    audit: Audit,
    *,
    hashes: PasswordHashes,
    throttle: SignInThrottle,
    on_departure: OnDeparture | None = None,
) -> PeopleServices:
    is_isolated = settings.sandbox_mode != LOGICAL
    return PeopleServices(
        People(store, audit, is_isolated=is_isolated, on_departure=on_departure),
        Teams(store, audit, on_departure=on_departure),
        Invitations(store, hashes, throttle, audit),
    )


@contextlib.asynccontextmanager
async def open_people_admin(settings: Settings) -> AsyncGenerator[PeopleServices]:
    """Open the administration of people and teams. A running Easel ends the work of a person who leaves."""
    async with open_admin_store(settings) as store:
        audit, throttle = Audit(store.audit), SignInThrottle(settings.sign_in_failures)
        try:
            yield build_people(settings, store.people, audit, hashes=PasswordHashes(), throttle=throttle)
        finally:
            await audit.close()


async def check_isolation(settings: Settings, database: "Database") -> None:
    """Raise `BadSettings` if commands of several people would not be isolated from each other."""
    if settings.sandbox_mode == LOGICAL and (count := await database.people.count_people()) > 1:
        raise BadSettings(
            problem=f"EASEL_SANDBOX_MODE is logical, and this Easel has {count} people: commands are not "
            "isolated, and they could read each other's files. Remove the setting, so that bubblewrap "
            "isolates commands, or delete the other people with `easel user delete`."
        )
