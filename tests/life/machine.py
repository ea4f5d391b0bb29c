"""Lives of tables as hypothesis draws and shrinks them: a rule for each change, all checks after each."""

from __future__ import annotations

import random
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pyiceberg.catalog import load_catalog

from tests.life import changes, spark_changes
from tests.life.checks import check
from tests.life.sidecar_changes import build
from tests.life.spark_changes import check_in_spark
from tests.life.table_life import Change, Life, SharedCatalog, numbers
from tests.serving.served import served as served_catalog
from tests.tables import new_catalog

SEEDS = st.integers(0, (1 << 16) - 1)
"""What a change chooses and what is asked afterwards."""


KINDS = ("plain", "served", "encrypted", "mixed")
"""Kinds of tables that pyiceberg writes, by their seed: one is read by a client of a server too, one has ORC files."""


class Grid:
    """What many lives came to."""

    def __init__(self) -> None:
        self.lives = 0
        self.tried: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.checks: Counter[str] = Counter()
        self.warnings: Counter[str] = Counter()

    def lines(self) -> list[str]:
        """The grid as text."""
        width = max(map(len, [*self.tried, *self.checks, "change"])) + 2
        lines = [f"{'change':<{width}}{'tried':>9}{'done':>9}"]
        lines += [f"{name:<{width}}{self.tried[name]:>9,}{self.done[name]:>9,}" for name in sorted(self.tried)]
        lines += [f"{'lives':<{width}}{self.lives:>9,}{sum(self.done.values()):>9,}"]
        return lines + [f"{name:<{width}}{count:>18,}" for name, count in sorted(self.checks.items())]


class Lives(RuleBasedStateMachine):
    """A life that has begun; its rules are those of a subclass."""

    grid = Grid()
    known: Mapping[Change, int]
    """The changes, and how often each is tried."""

    def __init__(self) -> None:
        super().__init__()
        self.life: Life | None = None

    def new_life(self, seed: int) -> Life:
        """A table without rows."""
        raise NotImplementedError

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        self.life = self.new_life(seed)
        for change in (changes.append, changes.append, build):
            self.life.do(change, seed)
        if self.life.place.can_commit_version_3:
            self.life.do(spark_changes.upgrade_to_3, seed)  # at times, see there

    def step(self, change: Change, seed: int) -> None:
        """Do one change, and all checks."""
        assert self.life is not None
        self.grid.tried[change.__name__] += 1
        if self.life.do(change, seed) is not None:
            self.grid.done[change.__name__] += 1
            self.check(self.life, seed)

    def check(self, life: Life, seed: int) -> None:
        check(life, seed)

    def teardown(self) -> None:
        if self.life is not None:
            self.grid.lives += 1
            self.grid.checks += self.life.tally
            self.grid.warnings += self.life.warnings


def lives_of(base: type[Lives], known: Mapping[Change, int]) -> type[Lives]:
    """A machine with a rule for each change, more rules for those that come often."""
    rules = {}
    for change, times in known.items():
        for number in range(times):
            name = change.__name__ + "_again" * number
            rules[name] = _rule_of(change, name)
    return type(base.__name__, (base,), {**rules, "grid": Grid(), "known": known})


def _rule_of(change: Change, name: str) -> Any:
    def act(self: Lives, seed: int) -> None:
        self.step(change, seed)

    act.__name__ = name
    return rule(seed=SEEDS)(act)


class LocalLives(Lives):
    """Lives without the JVM, each in a catalog of its own."""

    more_columns = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="life-")
        self.servers = ExitStack()

    def new_life(self, seed: int) -> Life:
        kind, place = KINDS[seed % len(KINDS)], SharedCatalog(new_catalog(self.folder))
        rng, mixed, encrypted = random.Random(seed), kind == "mixed", kind == "encrypted"
        made = Life(place, next(numbers), rng, mixed, self.more_columns, encrypted)
        if kind == "served":
            made.client = self.servers.enter_context(served_catalog(made.catalog, commits=True)).catalog()
        return made

    def teardown(self) -> None:
        super().teardown()
        self.servers.close()
        if self.life is not None:
            self.life.catalog.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def local_lives() -> type[Lives]:
    """A machine whose tables pyiceberg writes."""
    return lives_of(LocalLives, changes.CHANGES)


def spark_lives(spark: Any, places: Sequence[SharedCatalog]) -> type[Lives]:
    """A machine whose tables Spark and pyiceberg write by turns, each in one of the catalogs that both have."""

    class SparkLives(Lives):
        def new_life(self, seed: int) -> Life:
            chosen = random.Random(seed)
            place = places[seed % len(places)]
            return Life(place, next(numbers), chosen, spark=spark, properties=spark_changes.PROPERTIES)

        def check(self, life: Life, seed: int) -> None:
            check(life, seed)
            if seed % 3 == 0:
                check_in_spark(life, seed)

    return lives_of(SparkLives, spark_changes.CHANGES)


def served(spark: Any, address: str) -> SharedCatalog:
    """The catalog of a REST server, with a namespace of its own, for :func:`spark_lives`."""
    from tests.conftest import add_rest_catalog

    add_rest_catalog(spark, "lives", address)
    catalog = load_catalog("lives", type="rest", uri=address)
    namespace = f"lives_{uuid.uuid4().hex[:10]}"
    catalog.create_namespace(namespace)
    return SharedCatalog(catalog, "lives", namespace, can_commit_version_3=True)
