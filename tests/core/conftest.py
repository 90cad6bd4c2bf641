"""The same luck for every test: what is made by chance depends on the test alone, and not on what ran before it in its process."""

from __future__ import annotations

import random

import pytest


@pytest.fixture(autouse=True)
def same_chance(request: pytest.FixtureRequest) -> None:
    if isinstance(chance := getattr(request.module, "CHANCE", None), random.Random):
        chance.seed(request.node.name)
