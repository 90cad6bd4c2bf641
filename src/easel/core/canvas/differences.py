"""The differences between a canvas before and after a change, for the audit trail. RS-68

Owns the comparison of a canvas before and after a change, and the details of its records. A change of the
state has no record. Does not know the audit trail.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from easel.core.canvas.actions import Confirm
from easel.core.canvas.canvas import CanvasSnapshot
from easel.core.canvas.versions import object_or_empty
from easel.core.values.fingerprint import fingerprint

MAX_NAMES = 20  # of one list; a record has at most 2 KB


@dataclass(frozen=True, slots=True)
class Difference:
    action: str  # of the audit trail
    details: Mapping[str, Any]


def describe_creation(created: CanvasSnapshot) -> list[Difference]:
    """Return the records of a new canvas: its spec and its assets."""
    canvas = created.canvas
    details = {"accepted": canvas.is_accepted, **compare_specs({}, canvas.spec)}
    return [Difference("canvas.created", details), *_compare_assets(None, created)]


def describe_change(before: CanvasSnapshot, after: CanvasSnapshot) -> list[Difference]:
    """Return the records of a change: title, owner, spec, assets and acceptance."""
    old, new = before.canvas, after.canvas
    found: list[Difference] = []
    if old.title != new.title:
        found.append(Difference("canvas.renamed", {"from": old.title, "to": new.title}))
    if old.session_key != new.session_key:
        found.append(Difference("canvas.owner.changed", {"from": old.session_key, "to": new.session_key}))
    if old.spec_json != new.spec_json and (changed := compare_specs(old.spec, new.spec)):
        details = {"revision": new.revision, "accepted": new.is_accepted, **changed}
        found.append(Difference("canvas.spec.changed", details))
    found += _compare_assets(before, after)
    hints = new.tool_hints if old.spec_json == new.spec_json else old.tool_hints
    tools = [tool for tool in sorted(hints) if old.tool_hints.get(tool) != hints[tool]]
    if new.is_accepted and (not old.is_accepted or tools):
        agreed = {"tools": _limit(tools)} if tools else {}
        found.append(Difference("canvas.accepted", {"revision": new.spec_revision, **agreed}))
    return found


def compare_specs(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what differs between two specs, most important first."""
    policies = [object_or_empty(spec.get("toolPolicy")) for spec in (before, after)]
    actions = [object_or_empty(spec.get("actions")) for spec in (before, after)]
    jobs = [
        {str(object_or_empty(job).get("id")): job for job in _list(spec.get("refresh"))}
        for spec in (before, after)
    ]
    confirm = [{name: _confirm(action) for name, action in declared.items()} for declared in actions]
    changes: dict[str, Any] = {
        "allow": _compare_lists(*(_list(policy.get("allow")) for policy in policies)),
        "confirm": {
            name: level
            for name, level in list(confirm[1].items())
            if level != confirm[0].get(name, Confirm.AUTO.value)
        },
        "connect": _compare_lists(*(_list(policy.get("connect")) for policy in policies)),
        "secrets": _compare_lists(*(_list(policy.get("secrets")) for policy in policies)),
        "hosts": _compare_lists(*(_list(policy.get("hosts")) for policy in policies)),
        "actions": _compare_members(*actions),
        "refresh": _compare_members(*jobs),
        "members": _limit(
            name
            for name in {**before, **after}
            if name not in ("toolPolicy", "actions", "refresh")
            and fingerprint([before.get(name)]) != fingerprint([after.get(name)])
        ),
    }
    changes["confirm"] = dict(list(changes["confirm"].items())[:MAX_NAMES])
    return {name: change for name, change in changes.items() if change}


def _compare_assets(before: CanvasSnapshot | None, after: CanvasSnapshot) -> list[Difference]:
    old = {asset.path: asset for asset in (before.assets if before else ())}
    new = {asset.path: asset for asset in after.assets}
    changed = [
        Difference("canvas.asset.changed", {"path": path, "digest": asset.digest, "size": asset.size})
        for path, asset in new.items()
        if path not in old or (old[path].blob_key != asset.blob_key and old[path].digest != asset.digest)
    ]
    deleted = [
        Difference("canvas.asset.changed", {"path": path, "digest": asset.digest, "deleted": True})
        for path, asset in old.items()
        if path not in new
    ]
    return [*changed, *deleted]


def _compare_lists(before: Sequence[Any], after: Sequence[Any]) -> dict[str, Any]:
    return _without_empty(
        added=_limit(str(item) for item in after if item not in before),
        removed=_limit(str(item) for item in before if item not in after),
    )


def _compare_members(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return _without_empty(
        added=_limit(name for name in after if name not in before),
        removed=_limit(name for name in before if name not in after),
        changed=_limit(
            name for name in after if name in before and fingerprint(before[name]) != fingerprint(after[name])
        ),
    )


def _confirm(action: Any) -> str:
    return str(object_or_empty(action).get("confirm", Confirm.AUTO.value))


def _limit(names: Iterable[str]) -> list[str]:
    found = list(names)
    rest = len(found) - MAX_NAMES
    return found if rest <= 0 else [*found[:MAX_NAMES], f"and {rest} more"]


def _without_empty(**parts: list[str]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
