"""Seed the random values of a module by the name of the test, so that they do not depend on other tests."""

from __future__ import annotations

import random

import pytest


@pytest.fixture(autouse=True)
def seed_random_values(request: pytest.FixtureRequest) -> None:
    if isinstance(chance := getattr(request.module, "CHANCE", None), random.Random):
        chance.seed(request.node.name)
