"""The retention of the records of executions."""

from easel.host.periodic import Periodic, retention_interval
from easel.host.ports import ExecutionStore

PRUNE_SECONDS = 60.0


class RecordRetention:
    """Deletes the records of executions that ended longer ago than the retention time.

    If `retention_seconds` is 0, records are kept forever.
    """

    def __init__(self, executions: ExecutionStore, retention_seconds: float) -> None:
        self._executions = executions
        self._retention_seconds = retention_seconds

    def periodic(self) -> Periodic:
        every_seconds = retention_interval(PRUNE_SECONDS, self._retention_seconds)
        return Periodic("prune action records", every_seconds, self.prune)

    async def prune(self) -> None:
        """Delete expired records, batch by batch."""
        while self._retention_seconds and await self._executions.prune(self._retention_seconds):
            pass
