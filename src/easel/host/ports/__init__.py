"""The Protocols through which services reach stores, the notifier, models and tools.

A store raises `errors.Unavailable` when it cannot be reached. Every other outcome is part of the return
value, unless a method names an exception.
"""

from easel.host.ports.artifacts import ArtifactAccess, ArtifactStore, BlobStore, ReferenceStore, SweepClaims
from easel.host.ports.audit import AuditStore
from easel.host.ports.auth import AccountStore, SignInStore, TokenStore
from easel.host.ports.calls import CallStore
from easel.host.ports.canvases import CanvasStore, CanvasVersionStore
from easel.host.ports.deletions import DeletionStore
from easel.host.ports.documents import DocumentStore, Leases, RunLease
from easel.host.ports.executions import ExecutionStore
from easel.host.ports.models import Model, ModelSource
from easel.host.ports.nodes import NodeLink, NodeStore
from easel.host.ports.oauth import ConnectionStore, OAuthClient, OAuthFlowStore
from easel.host.ports.openid import IdentityStore, OpenIdClient, SignInFlowStore
from easel.host.ports.orders import OrderStore
from easel.host.ports.people import DepartureStore, PeopleStore
from easel.host.ports.runs import BoardStore, RunStore, TurnStore
from easel.host.ports.secrets import RotatedStore, SecretCipher, SecretSource, SecretStore, SettingStore
from easel.host.ports.sessions import SessionStore
from easel.host.ports.streams import LogSource, Notifier
from easel.host.ports.tools import RemoteTool, Tool, ToolSource
from easel.host.ports.usage import UsageStore

__all__ = [
    "AccountStore",
    "ArtifactAccess",
    "ArtifactStore",
    "AuditStore",
    "BlobStore",
    "BoardStore",
    "CallStore",
    "CanvasStore",
    "CanvasVersionStore",
    "ConnectionStore",
    "DeletionStore",
    "DepartureStore",
    "DocumentStore",
    "ExecutionStore",
    "IdentityStore",
    "Leases",
    "LogSource",
    "Model",
    "ModelSource",
    "NodeLink",
    "NodeStore",
    "Notifier",
    "OAuthClient",
    "OAuthFlowStore",
    "OpenIdClient",
    "OrderStore",
    "PeopleStore",
    "ReferenceStore",
    "RemoteTool",
    "RotatedStore",
    "RunLease",
    "RunStore",
    "SecretCipher",
    "SecretSource",
    "SecretStore",
    "SessionStore",
    "SettingStore",
    "SignInFlowStore",
    "SignInStore",
    "SweepClaims",
    "TokenStore",
    "Tool",
    "ToolSource",
    "TurnStore",
    "UsageStore",
]
