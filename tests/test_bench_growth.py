"""The measurement `growth` has a sample call of every route and method, and reads the log of Postgres."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from bench.growth import samples
from bench.growth.lock_waits import LockWaits, name_statement
from easel.edges.http.routes import ROUTES
from easel.edges.methods import METHODS
from tests.stores.statement_plans import all_statements


def test_every_route_and_method_has_a_sample_or_a_reason():
    assert samples.all_samples()


def test_new_route_without_a_sample_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(samples, "ROUTES", (*ROUTES, replace(ROUTES[0], path="/api/new")))
    with pytest.raises(LookupError, match="no sample call of POST /api/new"):
        samples.all_samples()


def test_sample_of_a_removed_method_is_an_error(monkeypatch: pytest.MonkeyPatch):
    rest = {name: method for name, method in METHODS.items() if name != "tools.list"}
    monkeypatch.setattr(samples, "METHODS", MappingProxyType(rest))
    with pytest.raises(LookupError, match=r"no route or method is named tools\.list"):
        samples.all_samples()


def test_lock_wait_is_reported_with_both_statements():
    log = """\
2026-11-18 11:00:00.000 UTC [17] LOG:  process 17 still waiting for ShareLock on transaction 9 after 200.1 ms
2026-11-18 11:00:00.000 UTC [17] DETAIL:  Process holding the lock: 23. Wait queue: 17.
2026-11-18 11:00:00.000 UTC [17] STATEMENT:  update sessions set title = $1
\t where account_id = $2
2026-11-18 11:00:01.000 UTC [17] LOG:  process 17 acquired ShareLock on transaction 9 after 900.0 ms
"""
    waits = LockWaits(holders={"23": "runs.prune_logs"})
    waits.read(log)
    [wait] = waits.found
    assert wait.startswith("runs.prune_logs → update sessions set title = $1")


def test_statement_of_the_product_is_named():
    [(name, statement)] = [pair for pair in all_statements("postgres") if pair[0] == "sessions.get_session"]
    assert name_statement(f"  {statement.sql}\n") == name
