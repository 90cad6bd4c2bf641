"""The stores of plain nouns: one class each, over the statements of either database."""

from collections.abc import Callable

from easel.stores.nouns.accounts import SqlAccounts
from easel.stores.nouns.artifacts import SqlArtifacts
from easel.stores.nouns.calls import SqlCalls
from easel.stores.nouns.canvas_versions import SqlCanvasVersions
from easel.stores.nouns.connections import SqlConnections
from easel.stores.nouns.deletions import SqlDeletions
from easel.stores.nouns.departures import SqlDepartures
from easel.stores.nouns.executions import SqlExecutions
from easel.stores.nouns.identities import SqlIdentities
from easel.stores.nouns.nodes import SqlNodes
from easel.stores.nouns.oauth_flows import SqlOAuthFlows
from easel.stores.nouns.orders import SqlOrders
from easel.stores.nouns.people import SqlPeople
from easel.stores.nouns.references import SqlReferences
from easel.stores.nouns.secrets import SqlSecrets
from easel.stores.nouns.sessions import SqlSessions
from easel.stores.nouns.settings import SqlSettings
from easel.stores.nouns.sign_in_flows import SqlSignInFlows
from easel.stores.nouns.sign_ins import SqlSignIns
from easel.stores.nouns.statements import Statements
from easel.stores.nouns.sweeps import SqlSweeps
from easel.stores.nouns.tokens import SqlTokens
from easel.stores.nouns.usage import SqlUsage


class NounStores:
    """The part of a database that both have in common. `statements` returns those of nouns."""

    def __init__(self, statements: Callable[..., Statements]) -> None:
        self.accounts = SqlAccounts(statements("accounts"))
        self.people = SqlPeople(statements("people", "accounts", "tokens", "sign_ins"))
        self.departures = SqlDepartures(statements("departures"))
        self.tokens = SqlTokens(statements("tokens"))
        self.sign_ins = SqlSignIns(statements("sign_ins"))
        self.identities = SqlIdentities(statements("identities", "people", "accounts", "tokens", "sign_ins"))
        self.sign_in_flows = SqlSignInFlows(statements("sign_in_flows"))
        self.settings = SqlSettings(statements("settings"))
        self.secrets = SqlSecrets(statements("secrets"))
        self.oauth_flows = SqlOAuthFlows(statements("oauth_flows"))
        self.connections = SqlConnections(statements("connections"))
        self.deletions = SqlDeletions(statements("deletions"))
        self.sessions = SqlSessions(statements("sessions"), self.deletions)
        self.artifacts = SqlArtifacts(statements("artifacts"))
        self.references = SqlReferences(statements("references"))
        self.canvas_versions = SqlCanvasVersions(statements("canvas_versions"))
        self.executions = SqlExecutions(statements("executions"))
        self.calls = SqlCalls(statements("calls"))
        self.nodes = SqlNodes(statements("nodes"))
        self.sweeps = SqlSweeps(statements("sweeps"))
        self.usage = SqlUsage(statements("usage"))
        self.orders = SqlOrders(statements("orders"))
