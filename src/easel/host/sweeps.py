"""Periodic work that one instance at a time does for all instances.

Owns the claim of an interval: the instance that gets it does the work, the others do nothing until the next
interval. Does not know what the work is.
"""

from easel.host.periodic import Periodic, Work
from easel.host.ports import SweepClaims

# Of the interval. Shorter than the whole, so that the instance that claimed the last interval does not miss
# the next one because its timer is some milliseconds early.
CLAIMED_SHARE = 0.9


def shared_periodic(claims: SweepClaims, name: str, every_seconds: float, work: Work) -> Periodic:
    """Return periodic work that only one of all instances does in each interval."""

    async def work_if_claimed() -> None:
        if await claims.claim(name, every_seconds * CLAIMED_SHARE):
            await work()

    return Periodic(name, every_seconds, work_if_claimed)
