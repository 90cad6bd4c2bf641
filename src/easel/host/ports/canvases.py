"""Ports of canvases: their stores."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Decide, NewCanvas, Outcome, View
from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.canvas.versions import Version, VersionContent
from easel.core.stream.envelope import Envelope
from easel.host.ports.streams import LogSource
from easel.ids import AccountId, CanvasId


class CanvasStore(LogSource, Protocol):
    """Canvases, their logs, and the rows of their assets and views."""

    async def create(self, new: NewCanvas, event: Envelope) -> CanvasSnapshot | None:
        """Create a canvas and the first event of its log. Returns None if the id is taken.

        If a deleted canvas of this id is not purged yet, it is purged first.
        """
        ...

    async def get(self, account_id: AccountId, canvas_id: CanvasId) -> CanvasSnapshot | None: ...

    async def list_canvases(
        self, account_id: AccountId, *, agent_id: str | None, after: str, limit: int
    ) -> list[Canvas]:
        """Return canvases with ids above `after`, in id order, without state; the spec has only its mode."""
        ...

    async def find_at(self, account_id: AccountId, *, agent_id: str | None, offset: int) -> CanvasId | None:
        """Return the id of the canvas at this offset of `list_canvases`, or None if there are fewer."""
        ...

    async def count(self, account_id: AccountId, *, agent_id: str | None, limit: int) -> int:
        """Return the number of canvases of `list_canvases`, at most `limit`."""
        ...

    async def get_agent(self, account_id: AccountId, canvas_id: CanvasId) -> str | None:
        """Return the id of the agent that has the canvas, or None if there is no such canvas."""
        ...

    async def change(
        self, account_id: AccountId, canvas_id: CanvasId, decide: Decide, *, seconds: float = 0
    ) -> Outcome | None:
        """Apply the change that `decide` returns, with its events, while the canvas is locked. CV-44

        Returns None if there is no such canvas. See `Decide` for the thread of `decide`; if it raises,
        nothing is stored. An opened view, or the claim on a running execution, expires after
        `seconds`. A change of the spec or the assets keeps the version before; the blobs of versions are not
        orphaned. Raises `DuplicateRequest` or `StaleTransition` if the transition of an execution cannot be
        made.
        """
        ...

    async def delete(self, account_id: AccountId, canvas_id: CanvasId, check: Decide) -> list[str] | None:
        """Delete a canvas with its log, assets, views and executions, unless `check` raises.

        The rows of its log and executions are purged later, see `DeletionStore`. Returns the blob keys of its
        assets and versions, or None if there is no such canvas.
        """
        ...

    async def find_unknown_assets(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        """Return the keys of blobs of at least this age that belong to no asset of a canvas or a version."""
        ...

    async def find_old_logs(self, older_than_seconds: float, after: LogKey, limit: int) -> OldLogs:
        """Return which of the next `limit` canvases, of all accounts, have events of at least this age."""
        ...

    async def trim_log(
        self, account_id: AccountId, canvas_id: CanvasId, older_than_seconds: float, step: int
    ) -> int:
        """Delete up to `step` events of at least this age, oldest first and never the last one.

        Returns how many events were deleted.
        """
        ...

    async def renew_views(self, connection_ids: Sequence[str], view_ttl_seconds: float) -> None: ...

    async def list_views(self, connection_id: str) -> list[tuple[AccountId, CanvasId, View]]: ...

    async def list_expired_views(self, limit: int) -> list[tuple[AccountId, CanvasId, View]]: ...


class CanvasVersionStore(Protocol):
    """Earlier versions of canvases. `CanvasStore.change` makes and prunes them."""

    async def current(self, account_id: AccountId, canvas_id: CanvasId) -> Version | None:
        """Return the present version of a canvas, or None if there is no such canvas."""
        ...

    async def list_versions(
        self,
        account_id: AccountId,
        canvas_id: CanvasId,
        *,
        before: int | None,
        limit: int,
        only_accepted: bool,
    ) -> list[Version]:
        """Return the versions below the number in `before`, newest first, without the present one."""
        ...

    async def get(self, account_id: AccountId, canvas_id: CanvasId, number: int) -> VersionContent | None:
        """Return an earlier version with its content, and the present revision of the canvas."""
        ...
