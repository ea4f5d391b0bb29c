"""What sidecar does to a table in its life, and another writer of statistics."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection
from contextlib import closing
from datetime import timedelta
from typing import Any

from pyiceberg.table.refs import SnapshotRefType

import sidecar
from sidecar.errors import SidecarError
from sidecar.iceberg.listing import list_snapshot
from sidecar.iceberg.refs import schema_at
from tests.iceberg.cases import local
from tests.life.table_life import Life, leaf_paths
from tests.maintenance import cases as care

IN_PROCESS: dict[str, Any] = {"engine": "local"}


def build(life: Life, among: Collection[str] = (), **engine: Any) -> str | None:
    """Index some columns of the head, of a branch or of an older snapshot, or of the head ``among`` these."""
    rng, table = life.rng, life.seen()
    if table.current_snapshot() is None:
        return None
    at: int | str | None = None
    if not among and rng.random() < 0.25 and (known := life.known_snapshots()):
        at = rng.choice(known)
    elif not among and rng.random() < 0.2:
        at = rng.choice(sorted(table.metadata.refs))
    paths = sorted(among) or leaf_paths(schema_at(table, at))
    chosen = rng.sample(paths, rng.randint(1, len(paths)))
    kinds: Any = rng.choice([["bloom"], ["bloom", "page-index"], ["bloom", "theta"], ["bloom", "theta", "page-index"]])
    options: dict[str, Any] = {
        "fpp": rng.choice(["auto", "auto", 0.01, 0.2]),
        "as_": rng.choice(["auto", "parquet", "orc"]),
        "full": rng.random() < 0.15,
        "save": rng.random() < 0.5,
    }
    how: dict[str, Any] = {"kinds": kinds, "threads": 1, "at": at, **options, **(engine or IN_PROCESS), **life.keys}
    report = _unless_damaged(life, lambda: sidecar.build(table, chosen, **how))
    report = report or sidecar.build(table, chosen, force=True, **how)
    assert not report.files_failed, report.files_failed
    life.indexed = sorted({*life.indexed, *chosen})
    life.warn(report.warnings)
    return f"build {at} {','.join(chosen)} as {','.join(kinds)} {options}"


def refresh(life: Life, **engine: Any) -> str | None:
    """What a scheduled job runs."""
    branches = [
        name for name, ref in life.table.metadata.refs.items() if ref.snapshot_ref_type == SnapshotRefType.BRANCH
    ]
    branch = life.rng.choice(sorted(branches)) if branches else None
    limit = life.rng.choice([None, None, None, 1])
    how: dict[str, Any] = {"threads": 1, "max_new_files": limit, "at": branch, **(engine or IN_PROCESS), **life.keys}
    report = _unless_damaged(life, lambda: sidecar.refresh(life.seen(), **how))
    if report is None:
        return f"refresh {branch}: refused"
    life.warn(report.warnings)
    if report.statistics_path is not None and report.action != "removed":
        check_recorded(life.table)
    if life.rng.random() < 0.2:  # refreshes come to an end
        again = [sidecar.refresh(life.seen(), **{**how, "max_new_files": None}).action for _ in range(3)]
        assert again[-1] in {"current", "empty", "undeclared"}, again
    return f"refresh {branch} {limit}: {report.action}"


def _unless_damaged(life: Life, run: Callable[[], Any]) -> Any:
    """What ``run`` returns; ``None`` if it is refused: a damaged file that it names is replaced by force alone."""
    try:
        return run()
    except SidecarError as error:
        if "--force" not in str(error) or not any(name in str(error) for name in life.damaged):
            raise
        return None


def check_recorded(table: Any) -> None:
    """What a sidecar has recorded of manifests lists the snapshot as the manifests do."""
    if table.refresh().current_snapshot() is None or not table.metadata.statistics:
        return
    with closing(sidecar.open_sidecar(table)) as opened:
        recorded = list_snapshot(table, None, opened.segments)
    read = list_snapshot(table)
    assert recorded.manifests == read.manifests
    for one, other in zip(recorded.files, read.files, strict=True):
        assert (one.raw_entry, one.known_as, one.partition) == (other.raw_entry, other.known_as, other.partition)
        assert (one.identity, one.sequence_number) == (other.identity, other.sequence_number)


def expire_registrations(life: Life) -> str:
    report = sidecar.expire(life.seen(), older_than=timedelta(0), retain_last=life.rng.choice([1, 1, 2]))
    return f"expire {len(report.expired)} registrations"


def collect_garbage(life: Life) -> str:
    """Four days pass, and what no registration names is deleted."""
    for path in (local(life.table.location()) / "metadata").iterdir():
        written = path.stat().st_mtime - 4 * care.DAY
        os.utime(path, (written, written))
    care.touch(life.table)
    report = sidecar.gc(life.seen())
    return f"delete {len(report.files)} sidecar files"


def register_others(life: Life) -> str | None:
    """Another engine computes its statistics and replaces ours."""
    if life.table.current_snapshot() is None:
        return None
    care.register_others(life.table)
    return "register another writer's statistics"


DAMAGE = ("bits", "bytes", "short", "gone")


def spoilt(data: bytes, what: str, rng: random.Random) -> bytes | None:
    """The bytes of a file after one kind of :data:`DAMAGE`; ``None`` if it is gone."""
    if what == "gone":
        return None
    if what == "short":
        return data[: rng.randrange(len(data))]
    whole = bytearray(data)
    for at in rng.sample(range(len(whole)), min(len(whole), 1 if what == "bits" else len(whole) // 50)):
        whole[at] ^= 1 << rng.randrange(8)
    return bytes(whole)


def damage(life: Life) -> str | None:
    """A registered file gets wrong bytes, ends too early, or is gone."""
    files = [local(entry.statistics_path) for entry in life.table.metadata.statistics]
    there = [path for path in files if path.is_file()]
    if not there:
        return None
    path, what = life.rng.choice(there), life.rng.choice(DAMAGE)
    data = spoilt(path.read_bytes(), what, life.rng)
    path.unlink()
    if data is None:
        life.lost.add(path.name)
    else:
        path.write_bytes(data)
    life.damaged.add(path.name)
    return f"damage a sidecar: {what}"


def embed(life: Life) -> str | None:
    """Data files get filters and page indexes of their own, under new names."""
    rows, table = life.begin(), life.seen()
    if table.format_version != 2 or table.current_snapshot() is None:
        return None
    names = leaf_paths(table.schema())
    options: dict[str, Any] = {
        "bloom": life.rng.sample(names, life.rng.randint(1, 4)),
        "page_index": life.rng.random() < 0.5,
        "refresh": life.rng.random() < 0.5,
    }
    report = _unless_damaged(life, lambda: sidecar.embed(table, engine="local", threads=1, **options, **life.keys))
    life.note_rows(rows)
    if report is None:
        return "embed without the refresh"
    life.warn(report.warnings())
    return f"embed {options}: {len(report.replaced)} files"
