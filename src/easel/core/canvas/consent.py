"""The consent of a team to a canvas: changes of its spec that one person may not accept alone. RS-77

Owns which changes of a spec need another person than their author, and which need an admin: an action that
another person must approve may not lose that, or be changed, by one person, and only an admin lets a canvas
use a secret that it did not use before, or send one in a new way. Each compares a spec with the accepted one.
Does not know stores.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from easel.core.canvas.actions import Approval
from easel.core.principal import Principal, Role
from easel.core.stream.json_text import to_json
from easel.core.values.fingerprint import fingerprint

if TYPE_CHECKING:
    from easel.core.canvas.canvas import Canvas, Change

_FOR_PEOPLE = frozenset({"title", "description"})  # members of an action that change no effect
_NOT_OF_CALLS = frozenset({"allow", "connect"})  # members of toolPolicy that change no call
_SECRETS = frozenset({"secrets"})  # of toolPolicy: their names are compared on their own


@dataclass(frozen=True, slots=True)
class Consent:
    """The part of the accepted spec that later ones are compared with. It is empty before an acceptance."""

    # The digest of each action that another person must approve.
    approvals: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: frozenset[str] = frozenset()  # that the spec may use
    # The digest of each action that sends a secret.
    senders: Mapping[str, str] = field(default_factory=dict[str, str])
    # The persons whose specs, none of them accepted, changed those actions since.
    proposed_by: frozenset[str] = frozenset()

    def to_text(self) -> str:
        """Return the JSON to store."""
        proposed = {"proposedBy": sorted(self.proposed_by)} if self.proposed_by else {}
        senders = {"senders": dict(self.senders)} if self.senders else {}
        return to_json(
            {
                "approvals": dict(self.approvals),
                "secrets": sorted(self.secrets),
                **senders,
                **proposed,
            }
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Consent":
        secrets = frozenset(stored.get("secrets", ()))
        proposed = frozenset(stored.get("proposedBy", ()))
        return cls(stored.get("approvals", {}), secrets, stored.get("senders", {}), proposed)


NO_CONSENT = Consent()


def consent_to(spec: Mapping[str, Any]) -> Consent:
    """Return what a person accepts with this valid spec."""
    policy = spec.get("toolPolicy", {})
    of_calls = _without(policy, _NOT_OF_CALLS)
    approvals = {
        action_id: fingerprint([_without(action, _FOR_PEOPLE), of_calls])
        for action_id, action in spec.get("actions", {}).items()
        if action.get("approval") == Approval.ANOTHER
    }
    senders = {
        action_id: fingerprint([_without(action, _FOR_PEOPLE), _without(of_calls, _SECRETS)])
        for action_id, action in spec.get("actions", {}).items()
        if action.get("secrets") or '"$secret"' in to_json(action)
    }
    return Consent(approvals, frozenset(policy.get("secrets", ())), senders)


def _without(members: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: part for name, part in members.items() if name not in names}


def consent_after(canvas: "Canvas", change: "Change", principal: Principal) -> Consent:
    """Return the consent of a canvas after a change of its spec or of its acceptance."""
    spec = canvas.spec if change.spec is None else change.spec
    if canvas.is_accepted if change.is_accepted is None else change.is_accepted:
        return consent_to(spec)
    return replace(canvas.consent, proposed_by=_proposers(canvas, spec, principal))


def why_not_alone(canvas: "Canvas", spec: Mapping[str, Any], principal: Principal) -> str | None:
    """Return why this person may not accept the spec for this canvas, None if they may. RS-77

    `spec` is what the person writes, or the present one of the canvas.
    """
    if problem := why_not_secrets(canvas.consent, spec, principal):
        return problem
    changed = _find_changed(canvas.consent, spec)
    if not changed or principal.responsible not in (None, *_proposers(canvas, spec, principal)):
        return None
    return (
        f"it changes the action {min(changed)}, which another person must approve, and you wrote or "
        "asked for that change; another member must accept it."
    )


def why_not_secrets(consent: Consent, spec: Mapping[str, Any], principal: Principal) -> str | None:
    """Return why this person may not let a canvas use the secrets of a spec, None if they may."""
    if principal.role is Role.ADMIN:
        return None
    asked = consent_to(spec)
    only_admin = "which only an admin of the account may accept."
    if new := asked.secrets - consent.secrets:
        return f"it names the secret {min(new)} for the first time, {only_admin}"
    if sent := [name for name, digest in asked.senders.items() if consent.senders.get(name) != digest]:
        return f"its action {min(sent)} sends a secret in a new way, {only_admin}"
    return None


def _proposers(canvas: "Canvas", spec: Mapping[str, Any], principal: Principal) -> frozenset[str]:
    """Return the persons who answer for what the spec changes of the actions that need another person.

    Also those of earlier changes: an edit of something else must not let one of them accept their own.
    """
    if not (changed := _find_changed(canvas.consent, spec)):
        return frozenset()
    earlier = frozenset[str]() if canvas.is_accepted else canvas.consent.proposed_by
    if not canvas.is_accepted and changed == _find_changed(canvas.consent, canvas.spec):
        return earlier  # what this write changes is something else
    return earlier if principal.responsible is None else earlier | {principal.responsible}


def _find_changed(consent: Consent, spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the accepted actions that need another person and are others in this spec, and what they are."""
    if not consent.approvals:
        return {}
    actions, same = spec.get("actions", {}), consent_to(spec).approvals
    of_calls = _without(spec.get("toolPolicy", {}), _NOT_OF_CALLS)
    return {
        action_id: fingerprint([_without(actions.get(action_id, {}), _FOR_PEOPLE), of_calls])
        for action_id, digest in consent.approvals.items()
        if same.get(action_id) != digest
    }
