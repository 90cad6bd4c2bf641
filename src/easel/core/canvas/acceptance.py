"""Acceptance of a canvas: whether a person wrote or accepted its spec and its page. RS-59, RS-68

Owns who may accept and what a write does to the acceptance. Does not know stores.
"""

from collections.abc import Iterable

from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import CanvasSnapshot
from easel.core.principal import Principal, PrincipalKind


def acceptance_after(
    principal: Principal, current: CanvasSnapshot, *, is_changed: bool, has_spec: bool, has_all_assets: bool
) -> bool | None:
    """Return whether the canvas is accepted after the write; None: its acceptance is unchanged.

    Only a person's write accepts: a spec, unless the canvas keeps assets that were not accepted. A change by
    any other principal ends the acceptance, because a page runs actions in the name of its viewer; the same
    content sent again leaves it as it was.
    """
    if not may_accept(principal):
        return False if is_changed else None
    if not has_spec:
        return None
    return True if current.canvas.is_accepted or has_all_assets or not current.assets else None


def may_accept(principal: Principal) -> bool:
    """Return whether the principal may accept a canvas: only a person may."""
    return principal.is_person


def has_limited_reach(principal: Principal) -> bool:
    """Return whether the principal's specs may allow only tools that it may call itself: those of agents."""
    return principal.kind is PrincipalKind.AGENT


def are_assets_changed(
    current: CanvasSnapshot, put: Iterable[Asset] | None, removed: Iterable[str] = ()
) -> bool:
    """Return whether a write changes the content of assets. Content of unknown digest counts as changed."""
    digests = {asset.path: asset.digest for asset in current.assets}
    return any(True for _ in removed) or any(
        asset.digest is None or asset.digest != digests.get(asset.path) for asset in put or ()
    )
