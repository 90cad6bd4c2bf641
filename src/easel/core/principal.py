"""The principal of a request: the account whose rows it reaches, and the person or program that acts.

Every service call and every query of an account's rows has a principal. RS-76
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from easel.ids import AccountId, RunId, UserId

MAIN_AGENT = "main"  # the id of the agent that executes runs


class Role(StrEnum):
    """The role of a principal in its account; each includes the rights of those before it. RS-76"""

    VIEWER = "viewer"  # reads
    MEMBER = "member"  # also talks, presses, confirms, edits and accepts
    ADMIN = "admin"  # also secrets, settings, audit and debug


def lower_role(one: Role, other: Role) -> Role:
    """Return the role with fewer rights. A credential never has more than the person behind it. RS-76"""
    return min(one, other, key=list(Role).index)


class PrincipalKind(StrEnum):
    """The kind of actor that acts in an account.

    Only a person may confirm actions and accept specs. A node may only offer tools and answer calls. RS-59
    """

    USER = "user"
    AGENT = "agent"
    NODE = "node"
    SERVICE = "service"


class ActorKind(StrEnum):
    """The kind of the acting principal as provenance and audit records name it. RS-68"""

    PERSON = "person"
    AGENT = "agent"
    SERVICE = "service"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Principal:
    account_id: AccountId
    name: str
    kind: PrincipalKind = PrincipalKind.USER
    role: Role = Role.VIEWER  # the default has the fewest rights
    is_operator: bool = False  # administers the host, and reads no other account's rows
    user_id: UserId | None = None  # the person who acts; None for a program
    on_behalf_of: UserId | None = None  # who answers for a program: made its token, or started its run
    token_id: str | None = None  # the token that authenticated the request
    only_node: str | None = None  # the node id that a node's token is bound to; None: not bound yet
    sign_in_id: str | None = None  # the browser sign-in of the request; valid until sign-out
    run_id: RunId | None = None  # the run in which an agent acts

    def __post_init__(self) -> None:
        if self.user_id is not None and self.kind is not PrincipalKind.USER:
            raise ValueError(f"a principal of kind {self.kind} must not have a user_id")
        if self.user_id is not None and self.on_behalf_of is not None:
            raise ValueError("a person acts on behalf of nobody else")

    @property
    def may_debug(self) -> bool:
        """Return whether the principal may read internal events. RS-36"""
        return self.is_person and self.role is Role.ADMIN

    @property
    def is_person(self) -> bool:
        return self.user_id is not None

    @property
    def responsible(self) -> UserId | None:
        """The person who acts or answers for the program that acts; None for Easel itself. RS-77"""
        return self.on_behalf_of if self.user_id is None else self.user_id

    @property
    def actor_kind(self) -> ActorKind:
        return ActorKind.PERSON if self.is_person else ActorKind(self.kind.value)

    @property
    def author(self) -> str:
        """The kind and the id of the actor in one text, as a canvas stores its author."""
        return f"{self.actor_kind.value} {self.actor_id}"

    @property
    def actor_id(self) -> str:
        """The id of the actor in provenance: a person's user id, otherwise the name. CC-17, RS-33"""
        return self.name if self.user_id is None else self.user_id


def acts_fully(principal: Principal) -> bool:
    """Return whether a person acts with all their rights: not by a token of a team, or of a lower role."""
    if principal.sign_in_id is not None:
        return True
    return principal.user_id == principal.account_id and principal.role is Role.ADMIN


def is_shared(principal: Principal) -> bool:
    """Return whether the principal acts in an account that others may have a part in: not in its own.

    A person's own account has the id of the person, who is its only member. RS-76
    """
    return principal.responsible != principal.account_id


def of_account(principal: Principal, account_id: str) -> Principal:
    """Return who acts as the records of this account name them, also if they act from another account."""
    return replace(principal, account_id=AccountId(account_id))


def as_program(principal: Principal, kind: PrincipalKind, name: str | None = None) -> Principal:
    """Return the principal of a program that acts for this one: it is no person and no operator."""
    responsible = principal.responsible
    role = Role.VIEWER if kind is PrincipalKind.NODE else principal.role
    name = principal.name if name is None else name
    return replace(
        principal,
        name=name,
        kind=kind,
        role=role,
        is_operator=False,
        user_id=None,
        on_behalf_of=responsible,
    )


def host_for(account_id: AccountId) -> Principal:
    """Return the principal of changes that Easel itself makes to the rows of this account."""
    return Principal(account_id, "easel", kind=PrincipalKind.SERVICE)


ANONYMOUS = Principal(AccountId(""), "nobody")  # for public routes: owns nothing, may do nothing
