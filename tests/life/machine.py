"""Lives of tables as hypothesis draws and shrinks them: a rule for each change, all checks after each."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pyiceberg.catalog.sql import SqlCatalog

from tests.life import changes
from tests.life.changes import CHANGES, Change
from tests.life.checks import check
from tests.life.table_life import Life

SEEDS = st.integers(0, (1 << 16) - 1)
"""What a change chooses and what is asked afterwards."""


class Grid:
    """What many lives came to."""

    def __init__(self) -> None:
        self.lives = 0
        self.tried: Counter[str] = Counter()
        self.run: Counter[str] = Counter()
        self.checks: Counter[str] = Counter()
        self.warnings: Counter[str] = Counter()

    def add(self, life: Life) -> None:
        self.lives += 1
        self.checks += life.tally
        self.warnings += life.warnings


class LocalLives(RuleBasedStateMachine):
    """Lives without the JVM."""

    grid = Grid()

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="life-")
        self.life: Life | None = None

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        self.life = begin_life(self.folder, seed)

    def step(self, change: Change, seed: int) -> None:
        assert self.life is not None
        self.grid.tried[change.__name__] += 1
        if changes.run(self.life, change, seed) is not None:
            self.grid.run[change.__name__] += 1
            check(self.life, seed)

    def teardown(self) -> None:
        if self.life is not None:
            self.grid.add(self.life)
        shutil.rmtree(self.folder, ignore_errors=True)


def begin_life(folder: str, seed: int) -> Life:
    """A table in a catalog of its own, with some rows and an index."""
    import random

    catalog = SqlCatalog("cat", uri=f"sqlite:///{folder}/cat.db", warehouse=f"file:{folder}/wh")
    catalog.create_namespace("db")
    life = Life(catalog, 1, random.Random(seed), mixed=seed % 4 == 3)
    for change in (changes.append, changes.append, changes.build):
        changes.run(life, change, seed)
    return life


def _rule_of(change: Change) -> Any:
    def act(self: Any, seed: int) -> None:
        self.step(change, seed)

    act.__name__ = change.__name__
    return rule(seed=SEEDS)(act)


for _change, _times in CHANGES.items():
    for _number in range(_times):
        _name = _change.__name__ + "_" * _number
        setattr(LocalLives, _name, _rule_of(_change))
