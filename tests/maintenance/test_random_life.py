"""200 random operations on one table: gc deletes exactly what its rule allows, by an oracle and a ledger."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar.errors import SidecarError
from sidecar.iceberg.statistics_files import entry_commits
from sidecar.iceberg.statistics_files.registering import register_again
from tests.maintenance.cases import (
    DAY,
    entries,
    head,
    make,
    metadata_folder,
    others_file,
    pass_days,
    register_others,
    rows,
)

OPERATIONS = 200
AGE = timedelta(days=3)


class Life:
    """A table, and the names of the files in its metadata folder by who wrote them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.table = make(folder)
        self.folder = metadata_folder(self.table)
        self.ours = {path.name for path in self.folder.glob("*.stats")}
        self.others: set[str] = set()
        self.deleted = 0
        self.tags = 0

    def puffins(self) -> set[str]:
        return {path.name for path in self.folder.iterdir() if path.suffix in (".stats", ".puffin")}

    def append(self) -> None:
        self.table.refresh().append(rows(self.rng.randrange(100)))

    def overwrite(self) -> None:
        self.table.refresh().overwrite(rows(self.rng.randrange(100)))

    def build(self) -> None:
        before = self.puffins()
        sidecar.build(self.table.refresh(), [self.rng.choice("ks")], engine="local")
        self.ours |= self.puffins() - before

    def killed_build(self) -> None:
        """A file of ours that was never registered: a copy of another one, under a new name."""
        sources = sorted(self.ours & self.puffins())
        if sources:
            name = f"{self.rng.randrange(10**9)}-killed.stats"
            shutil.copyfile(self.folder / self.rng.choice(sources), self.folder / name)
            self.ours.add(name)

    def register_others(self) -> None:
        before = self.puffins()
        register_others(self.table, head(self.table))
        self.others |= self.puffins() - before

    def orphan_of_others(self) -> None:
        name = f"{self.rng.randrange(10**9)}-orphan.{self.rng.choice(['stats', 'puffin'])}"
        others_file(self.table, name)
        self.others.add(name)

    def register_again(self) -> None:
        known = list(self.table.refresh().metadata.statistics)
        if known:
            register_again(self.table, self.rng.choice(known), head(self.table))

    def tag(self) -> None:
        self.tags += 1
        self.table.refresh().manage_snapshots().create_tag(head(self.table), f"v{self.tags}").commit()

    def expire_snapshots(self) -> None:
        metadata = self.table.refresh().metadata
        held = {ref.snapshot_id for ref in metadata.refs.values()}
        free = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in held]
        if free:
            gone = self.rng.sample(free, min(len(free), 2))
            self.table.maintenance.expire_snapshots().by_ids(gone).commit()

    def expire(self) -> None:
        older_than = timedelta(seconds=self.rng.choice([0, 0, 3600]))
        sidecar.expire(self.table.refresh(), older_than=older_than, retain_last=self.rng.choice([1, 1, 2]))

    def pass_time(self) -> None:
        pass_days(self.table, self.rng.choice([0.5, 1.0, 2.0]))

    def collect(self) -> None:
        allowed, before = self.allowed(), {path.name for path in self.folder.iterdir()}
        preview = sidecar.gc(self.table, older_than=AGE, dry_run=True)
        report = sidecar.gc(self.table, older_than=AGE)
        gone = before - {path.name for path in self.folder.iterdir()}
        assert gone == allowed
        assert {file.path.rpartition("/")[2] for file in report.files} == gone
        assert preview.files == report.files
        self.deleted += len(gone)

    def allowed(self) -> set[str]:
        """What the rule allows, from the files themselves: every version of the metadata is read as JSON."""
        times = {path.name: path.stat().st_mtime for path in self.folder.iterdir()}
        latest = max(times.values()) - AGE.total_seconds()
        current = self.table.refresh().metadata_location.rpartition("/")[2]
        named: set[str] = set()
        for name in times:
            if name.endswith(".metadata.json") and (times[name] >= latest or name == current):
                found = json.loads((self.folder / name).read_text()).get("statistics", [])
                named |= {entry["statistics-path"].rpartition("/")[2] for entry in found}
        named |= self.reusable(json.loads((self.folder / current).read_text()))
        return {name for name in self.ours & set(times) if times[name] < latest and name not in named}

    def reusable(self, current: dict[str, Any]) -> set[str]:
        """For each branch and tag, the file of ours that statistics of others displaced, if they are the nearest."""
        log = [self.folder / one["metadata-file"].rpartition("/")[2] for one in current["metadata-log"]]
        versions = [_files_by_snapshot(json.loads(path.read_text())) for path in reversed(log)]
        snapshots = {one["snapshot-id"]: one for one in current["snapshots"]}
        standing, found = _files_by_snapshot(current), set()
        for ref in current["refs"].values():
            order, at = [], ref["snapshot-id"]
            now = snapshots[at]["timestamp-ms"]
            while at in snapshots:
                order.append(at)
                at = snapshots[at].get("parent-snapshot-id")
            times = {
                one: abs(snapshots[one]["timestamp-ms"] - now) if one in snapshots else 1 << 62 for one in standing
            }
            order = [one for one in order if one in standing]
            order += sorted(standing.keys() - set(order), key=lambda one: (times[one], one))
            passed = list(takewhile(lambda one: standing[one] not in self.ours, order))
            found |= set(islice(self._displaced(passed, versions), 1))
        return found

    def _displaced(self, passed: list[int], versions: list[dict[int, str]]) -> Iterator[str]:
        for version in versions:
            passed = [one for one in passed if one in version]
            yield from (version[one] for one in passed if version[one] in self.ours & self.puffins())

    def check(self) -> None:
        named = {path.rpartition("/")[2] for path in entries(self.table).values()}
        assert named <= self.puffins(), "an entry names a file that is gone"
        assert self.others <= self.puffins(), "a file of others is gone"
        key = self.rng.randrange(105)
        found = sidecar.scan(self.table, f"k = {key}").sort_by("s")
        assert found.equals(self.table.scan(f"k = {key}").to_arrow().sort_by("s"))


def _files_by_snapshot(version: dict[str, Any]) -> dict[int, str]:
    return {one["snapshot-id"]: one["statistics-path"].rpartition("/")[2] for one in version.get("statistics", [])}


def test_a_long_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)
    life = Life(tmp_path, seed=14)
    often: list[Callable[[], None]] = [life.append, life.build, life.pass_time, life.expire, life.collect]
    seldom = [
        life.overwrite, life.killed_build, life.register_others, life.orphan_of_others, life.register_again, life.tag,
        life.expire_snapshots,
    ]  # fmt: skip
    for number in range(OPERATIONS):
        act = life.rng.choice(often * 2 + seldom)
        try:
            act()
            if number % 4 == 0:
                life.check()
        except (AssertionError, SidecarError) as error:
            raise AssertionError(f"after operation {number}, {act.__name__}") from error
    assert life.deleted > 20
    pass_days(life.table, 2 * AGE.total_seconds() / DAY)
    sidecar.expire(life.table.refresh(), older_than=timedelta(0))
    life.pass_time()
    pass_days(life.table, 2 * AGE.total_seconds() / DAY)
    life.collect()
    named = {path.rpartition("/")[2] for path in entries(life.table).values()}
    now = json.loads((life.folder / life.table.refresh().metadata_location.rpartition("/")[2]).read_text())
    assert life.ours & life.puffins() == life.ours & (named | life.reusable(now)), "nothing is old and useless"
    life.check()
