"""The identity of a person in a verified ID token, and the teams that a claim gives them. RS-76

An identity is the issuer with the subject. An e-mail address never finds a person; a verified one only
decides whether a new person may be made. Owns which claims of a token are accepted. Does not know signatures.
"""

import hmac
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from easel.core.account import MAX_DISPLAY_NAME_LENGTH, MAX_NAME_LENGTH, Member
from easel.core.principal import Role
from easel.ids import AccountId, UserId

MAX_SUBJECT_LENGTH = 255
MAX_BASE_LENGTH = 48  # of a name, so that a suffix fits
MAX_NUMBERED = 20  # names with a number that are tried
MAX_CLAIMED_TEAMS = 100
LEEWAY_SECONDS = 60.0  # by which the clocks of provider and host may differ

_NOT_OF_A_NAME = re.compile(r"[^a-z0-9]+")
_TEAM = re.compile(rf"[a-z0-9-]{{1,{MAX_NAME_LENGTH}}}")
_RANKS = (Role.VIEWER, Role.MEMBER, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Identity:
    issuer: str
    subject: str
    email: str | None = None  # in lower case; None unless the provider has verified it
    name_hint: str = ""
    display_name: str | None = None
    teams: Mapping[AccountId, Role] = field(default_factory=dict[AccountId, Role])


@dataclass(frozen=True, slots=True)
class KnownIdentity:
    """The person of an identity in their own account; None: they were disabled or deleted."""

    user_id: UserId
    member: Member | None


@dataclass(frozen=True, slots=True)
class TeamChanges:
    """Changes of the teams of a person by a sign-in, and the teams that it left as they are."""

    given: Mapping[str, str] = field(default_factory=dict[str, str])  # team: role
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # teams of which the person is the last admin
    unknown: tuple[str, ...] = ()


def find_flaw(
    claims: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str, now: float
) -> str | None:
    """Return why the claims of an ID token are not accepted, None if they are. Never repeats a claim."""
    audience = claims.get("aud")
    audiences: Sequence[Any] = cast("list[Any]", audience) if isinstance(audience, list) else [audience]
    subject, sent_nonce = claims.get("sub"), claims.get("nonce")
    expires, issued, begins = (_time(claims.get(name)) for name in ("exp", "iat", "nbf"))
    if claims.get("iss") != issuer:
        return "it is from another issuer"
    if client_id not in audiences:
        return "it is for another audience"
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != client_id:
        return "it was issued to another client"
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_LENGTH or not _is_text(subject):
        return "it has no valid subject"
    if not isinstance(sent_nonce, str) or not hmac.compare_digest(sent_nonce.encode(), nonce.encode()):
        return "it belongs to another sign-in"
    if expires is None or expires + LEEWAY_SECONDS <= now:
        return "it has expired"
    if issued is None or issued - LEEWAY_SECONDS > now or (begins or 0) - LEEWAY_SECONDS > now:
        return "it is from the future; compare the clocks of both servers"
    return None


def read_identity(claims: Mapping[str, Any], teams_claim: str) -> Identity:
    """Return the identity that accepted claims describe."""
    address = claims.get("email")
    email = address.lower() if isinstance(address, str) else ""
    # Microsoft Entra sends `xms_edov` instead: whether the owner of the address's domain was verified.
    of_domain = claims.get("xms_edov") in (True, "1", "true")
    is_verified = claims.get("email_verified", of_domain) is True
    preferred, shown = claims.get("preferred_username"), claims.get("name")
    hint = preferred if isinstance(preferred, str) and preferred else email
    return Identity(
        issuer=claims["iss"],
        subject=claims["sub"],
        email=email if email and is_verified else None,
        name_hint=hint.partition("@")[0],
        display_name=_display_name(shown) if isinstance(shown, str) else None,
        teams=read_teams(claims.get(teams_claim)) if teams_claim else {},
    )


def read_teams(value: Any) -> dict[AccountId, Role]:
    """Return the teams of a claim: a list of `team:role`, or of `team` for a member. Ignores other values."""
    listed: Sequence[Any] = value.split() if isinstance(value, str) else value if _is_list(value) else ()
    teams: dict[AccountId, Role] = {}
    for entry in listed[:MAX_CLAIMED_TEAMS]:
        team, _, word = entry.partition(":") if isinstance(entry, str) else ("", "", "")
        word = word or Role.MEMBER.value
        if _TEAM.fullmatch(team) is None or word not in {*Role}:
            continue
        role, before = Role(word), teams.get(AccountId(team), Role.VIEWER)
        teams[AccountId(team)] = max(role, before, key=_RANKS.index)
    return teams


def names_for(hint: str) -> Iterator[str]:
    """Yield names for a new account, the best one first."""
    plain = unicodedata.normalize("NFKD", hint).encode("ascii", "ignore").decode().lower()
    base = _NOT_OF_A_NAME.sub("-", plain).strip("-")[:MAX_BASE_LENGTH].rstrip("-") or "person"
    yield base
    yield from (f"{base}-{number}" for number in range(2, MAX_NUMBERED + 2))


def _display_name(text: str) -> str | None:
    text = " ".join(text.split())
    return text if 0 < len(text) <= MAX_DISPLAY_NAME_LENGTH and text.isprintable() else None


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_text(text: str) -> bool:
    """Return whether a database stores the text: no NUL, no half of a surrogate pair."""
    return text.isprintable() and text.isascii()


def _time(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
