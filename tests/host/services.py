"""The services of one process on the store of a test, from the real assembly. Several may share a store, as
instances do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec

from easel.assembly.resources import Resources
from easel.assembly.services import build_services, open_shared_services
from easel.host.actions.request import ActionRequest
from easel.host.canvases.drafts import Draft
from easel.ids import OWNER
from easel.sandbox.modes import Choice
from easel.settings import Settings
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from easel.core.principal import Principal
    from easel.host.actions.request import ActionResult
    from easel.host.ports import Tool
    from easel.host.services import Services
    from tests.host.conftest import RunHarness

CLAIM_SECONDS = 30.0
POLL_SECONDS = 0.05
SETTINGS: dict[str, Any] = {
    # Of a store that instances share. The database itself is that of the test.
    "database_url": "postgresql://",
    "token": "the-token-of-the-owner",
    "secret_key": "k" * 32,
    "claim_seconds": CLAIM_SECONDS,
    "poll_seconds": POLL_SECONDS,
    # Longer than any test, so that no tool times out on a slow machine.
    "tool_timeout_seconds": 60.0,
    "run_timeout_seconds": 60.0,
    "max_actions": 20,
    "max_asset_bytes": 10_000,
    "max_message_bytes": 100_000,
    "max_result_bytes": 100_000,
    "max_state_bytes": 100_000,
}


class HostServices:
    def __init__(
        self,
        harness: RunHarness,
        services: Services,
        resources: contextlib.AsyncExitStack,
    ) -> None:
        self.harness = harness
        self.blobs = harness.blobs
        self.tools, self.library, self.assets = services.tools, services.canvases, services.assets
        self.views, self.versions = services.views, services.versions
        self.actions, self.refresh, self.runs = services.actions, services.refresh, services.tails
        self.executor = services.actions._executor
        self._resources = resources

    @classmethod
    async def open(cls, harness: RunHarness, *tools: Tool, **settings: Any) -> HostServices:
        """Build the services with these settings instead of the defaults."""
        values: dict[str, Any] = {**SETTINGS, "data": str(harness.database.path.parent), **settings}
        resources = Resources(
            Settings(**values),
            harness.database,
            harness.blobs,
            harness.artifacts,
            harness.audit,
            "k" * 32,
        )
        opened = contextlib.AsyncExitStack()
        shared = await opened.enter_async_context(open_shared_services(resources, Choice(None, "off"), tools))
        return cls(harness, build_services(shared, random=lambda: 0.0), opened)

    async def create(
        self, spec: dict[str, Any], principal: Principal = THE_OWNER, canvas_id: str = "c"
    ) -> None:
        await self.library.create(principal, Draft(canvas_id=canvas_id, spec={"version": 1, **spec}))

    async def run(self, action_id: str, *, principal: Principal = THE_OWNER, **more: Any) -> ActionResult:
        return await self.actions.execute(
            principal,
            ActionRequest(
                action_id=action_id, **{"canvas_id": "c", "input": {}, "client_id": "test", **more}
            ),
        )

    async def state(self) -> Any:
        return (await self.library.get(THE_OWNER, "c")).canvas.state

    async def blob_keys(self) -> list[str]:
        return sorted([key async for key in self.blobs.list("accounts")])

    async def log(self, *types: str, canvas_id: str = "c") -> list[tuple[str, dict[str, Any]]]:
        events = await self.harness.database.canvases.events_after(f"owner/{canvas_id}", 0, 1_000)
        return [
            (event.type, msgspec.json.decode(event.data))
            for event in events
            if not types or event.type in types
        ]

    async def audited(self, action: str) -> list[dict[str, Any]]:
        """Return the details of the newest audit records of this action, with those noted just now."""
        await asyncio.sleep(0)
        await self.harness.audit.close()  # all that was noted is stored then
        found = await self.harness.database.audit.list_records(
            OWNER,
            of_host=True,
            action=action,
            storage_class=None,
            since=None,
            until=None,
            before=None,
            limit=10,
        )
        return [json.loads(link.record)["details"] for link in found]

    async def close(self) -> None:
        await self.refresh.stop()
        await self.actions.stop()
        await self.runs.close()
        await self._resources.aclose()
