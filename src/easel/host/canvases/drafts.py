"""Drafts of canvases: the content that an author sends, checked before it is stored.

Owns the members of a draft and the order of the checks. Does not know how canvases are stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from easel.core.action.approval import refuse_another
from easel.core.action.argument_warnings import find_argument_warnings
from easel.core.action.policy import Definitions, check_reach, check_templates, collect_problems
from easel.core.action.timeouts import timeout_warnings
from easel.core.canvas.actions import Confirm, PatchState
from easel.core.canvas.canvas import parse_title, require_agent_id, require_canvas_id, require_session_key
from easel.core.canvas.content import has_limited_reach
from easel.core.canvas.spec import CanvasSpec, Refresh, SpecLimits, check_state_size, parse_spec, read_spec
from easel.core.principal import Principal, is_shared
from easel.core.problems import Problems
from easel.core.stream.payload_limit import OffloadedValue, offload_large_values
from easel.core.values.patch import check_patch_names
from easel.core.values.paths import check_names
from easel.errors import BadInput
from easel.host.canvases.assets import CanvasAssets
from easel.host.tools.registry import ToolRegistry
from easel.ids import CanvasId


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A canvas as an author sends it. A member that was not sent is None."""

    canvas_id: str
    agent_id: str | None = None
    title: str | None = None
    owner_session_key: str | None = None
    spec: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    assets: Mapping[str, bytes] | None = None
    # False: the canvas is not accepted, even if a person sends it. True: replacing a canvas raises `BadInput`
    # if the canvas would not be accepted afterwards.
    is_accepted: bool | None = None
    expected_revision: int | None = None


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """A valid draft with large values offloaded."""

    canvas_id: CanvasId
    draft: Draft
    spec: Mapping[str, Any] | None
    state: Mapping[str, Any] | None
    parsed: CanvasSpec | None
    refreshes: list[Refresh] | None  # the enabled refresh jobs of the spec; None without a spec
    offloaded: Sequence[OffloadedValue]


class DraftChecker:
    """Checks drafts and specs against the limits and the tools that are available now."""

    def __init__(self, assets: CanvasAssets, tools: ToolRegistry, limits: SpecLimits, floor: Confirm) -> None:
        self._assets = assets
        self._tools = tools
        self._limits = limits
        self._floor = floor

    async def check(self, principal: Principal, draft: Draft) -> CheckedDraft:
        """Check a draft and offload its large values. Raises `BadInput` or `TooLarge`."""
        canvas_id = require_canvas_id(draft.canvas_id)
        parse_title(draft.title, canvas_id)
        require_session_key(draft.owner_session_key)
        if draft.agent_id is not None:
            require_agent_id(draft.agent_id)
        parsed = None if draft.spec is None else await self.parse_spec(principal, draft.spec)
        if draft.state is not None:
            check_state_size(draft.state, self._limits.state_bytes)
            check_names(draft.state, "state")
        self._assets.check(draft.assets or {})
        spec, offloaded_of_spec = offload_large_values(draft.spec)
        state, offloaded_of_state = offload_large_values(draft.state)
        refreshes = None if parsed is None else enabled_refreshes(parsed)
        offloaded = (*offloaded_of_spec, *offloaded_of_state)
        return CheckedDraft(canvas_id, draft, spec, state, parsed, refreshes, offloaded)

    async def parse_spec(self, principal: Principal, spec: Mapping[str, Any]) -> CanvasSpec:
        """Parse a spec and check it against the tools and the reach of its author. RS-16, RS-45, RS-59

        Raises `BadInput` with all problems of the spec.
        """
        problems = Problems()
        parsed = read_spec(spec, self._limits, problems)
        problems.take(None, check_names, spec.get("state"), "state")
        for action_id, action in parsed.actions.items():
            if isinstance(action, PatchState):
                problems.take(None, check_patch_names, action.patch, f"actions.{action_id}.patch")
        if not is_shared(principal):
            for action_id, action in parsed.actions.items():
                problems.take(None, refuse_another, action, f"actions.{action_id}.approval")
        definitions = await self.definitions(principal)
        collect_problems(parsed, definitions, problems, floor=self._floor)
        problems.raise_all("The spec")
        if has_limited_reach(principal):
            check_reach(parsed, definitions.__contains__)
        _, offloaded = offload_large_values({name: value for name, value in spec.items() if name != "state"})
        if offloaded:  # the stored spec would contain markers instead of these values
            raise BadInput(problem="spec: must not contain Base64 over 2 KB; use an asset or the state.")
        return parsed

    async def definitions(self, principal: Principal) -> Definitions:
        """Return the tools that the canvases of this user can call now."""
        return await self._tools.definitions(principal.account_id)

    async def warnings(self, principal: Principal, spec: Mapping[str, Any]) -> list[str]:
        """Return warnings about the templates, arguments and timeouts of a valid spec. RS-45, RS-66"""
        parsed, tools = parse_spec(spec, self._limits), await self._tools.definitions(principal.account_id)
        return [
            *check_templates(parsed, tools, floor=self._floor),
            *find_argument_warnings(parsed, tools, self._tools.find_argument_errors),
            *timeout_warnings(parsed, tools, self._tools.timeout_seconds),
            *(
                f"toolPolicy.secrets: {name} does not exist yet; set it with `easel secret set {name}`."
                for name in await self._tools.missing_secrets(principal.account_id, parsed.secrets)
            ),
        ]


def enabled_refreshes(spec: CanvasSpec) -> list[Refresh]:
    """Return the refresh jobs that a spec enables."""
    return [refresh for refresh in spec.refreshes if refresh.is_enabled]
