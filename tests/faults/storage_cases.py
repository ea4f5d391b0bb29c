"""Commands on one prepared lake whose storage breaks a request, and what must be true whatever became of them.

A new command is a line in :data:`COMMANDS`. The oracle is :func:`judge`: the right answer or a named error of ours; and
then the table reads right, no file that somebody needs is gone, a target is whole or absent, and the next run ends well.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

import sidecar
from sidecar.errors import CommitConflictError, DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError
from sidecar.iceberg.registering import unregister
from sidecar.puffin.types import THETA
from sidecar.puffin.writer import PuffinWriter
from tests.faults.storage import BREAKS, FAULTS, Mode, Request, local_storage, open_door, real_path, restore

NOW = timedelta(0)
DAYS = 4 * 86_400.0
BIG, SMALL = 40_000, 60
"""Rows of a file that sidecar reads page by page, and of one that it hands to pyiceberg."""
LONGEST = 20.0
"""Seconds after which a command counts as hanging. A command takes less than one."""
ANSWERS = (StorageError, DamagedFileError, CommitConflictError)
OF_OTHER_BYTES = (*ANSWERS, UnsupportedFeatureError)
"""Errors that name what happened: of storage, and of bytes that are not those that were written."""


class Lake(NamedTuple):
    """The prepared table and files, by one door."""

    door: str
    folder: Path
    table: Table

    def path(self, name: str) -> str:
        """The location of a file in the folder ``files``."""
        if self.door == "file":
            return str(self.folder / "wh" / "files" / name)
        return f"{self.table.catalog.properties['warehouse']}/files/{name}"

    def real(self, location: str) -> Path:
        """The local file of a location."""
        return real_path(location, self.folder)

    @property
    def io(self) -> Any:
        """What reaches files: nothing for local paths."""
        return None if self.door == "file" else self.table.io


class Command(NamedTuple):
    """A command: ``run`` is what it does."""

    run: Callable[[Lake], Any]
    answer: Callable[[Any], Any] = lambda result: None
    """What of the result matters."""
    is_allowed: Callable[[Any, Any], bool] = lambda right, answer: right == answer
    """Whether an answer is right, given that of an unbroken run."""
    is_done: Callable[[Lake], bool] = lambda lake: True
    """For commands that change the table: whether nothing is left to do."""
    changes: bool = False
    before: Callable[[Lake], list[str]] = lambda lake: []
    """What happens to the lake first; files that entries name and that are gone then."""


def sorted_rows(found: pa.Table) -> Any:
    return found.sort_by("k").to_pylist()


def _embed(lake: Lake) -> Any:
    return sidecar.embed_file(lake.path("plain.parquet"), lake.path("out"), bloom=["k"], page_index=True, io=lake.io)


def _rows_of(lake: Lake) -> Any:
    return sidecar.scan_file(lake.path("embedded.parquet"), KEYS, io=lake.io)


KEYS = "k in (3, 7, 100003, 200005)"
COMMANDS = {
    "build": Command(
        lambda lake: sidecar.build(lake.table, ["k"], kinds=["bloom", "page-index", "theta"], engine="local"),
        is_done=lambda lake: is_covered(lake),
        changes=True,
    ),
    "refresh": Command(
        lambda lake: sidecar.refresh(lake.table, engine="local"), is_done=lambda lake: is_covered(lake), changes=True
    ),
    "compact": Command(
        lambda lake: sidecar.compact(lake.table),
        is_done=lambda lake: not sidecar.compact(lake.table.refresh(), dry_run=True).commits,
        changes=True,
    ),
    "expire": Command(
        lambda lake: sidecar.expire(lake.table, older_than=NOW),
        is_done=lambda lake: not sidecar.expire(lake.table.refresh(), older_than=NOW, dry_run=True).expired,
        changes=True,
    ),
    "gc": Command(
        lambda lake: sidecar.collect_garbage(lake.table),
        is_done=lambda lake: not sidecar.collect_garbage(lake.table, dry_run=True).files,
        changes=True,
    ),
    "embed TABLE": Command(
        lambda lake: sidecar.embed_table(lake.table, bloom=["k"], even_if_dictionary=True),
        is_done=lambda lake: all("-sidecar-" in t.file.file_path for t in lake.table.refresh().scan().plan_files()),
        changes=True,
    ),
    "repair": Command(
        lambda lake: sidecar.repair(lake.table),
        is_done=lambda lake: not sidecar.repair(lake.table.refresh(), dry_run=True).repairs,
        changes=True,
        before=lambda lake: lose_a_statistics_file(lake),
    ),
    "embed": Command(_embed),
    "embed from": Command(
        lambda lake: sidecar.embed_from(
            lake.path("sidecar.puffin"), lake.path("plain.parquet"), lake.path("out"), io=lake.io
        )
    ),
    "strip": Command(lambda lake: sidecar.strip_file(lake.path("embedded.parquet"), lake.path("out"), io=lake.io)),
    "extract": Command(
        lambda lake: sidecar.extract_files([lake.path("embedded.parquet")], lake.path("out.puffin"), io=lake.io)
    ),
    "convert": Command(
        lambda lake: sidecar.convert_files([lake.path("sidecar.puffin")], lake.path("out.puffin"), fpp=0.2, io=lake.io)
    ),
    "plan": Command(
        lambda lake: sidecar.plan(lake.table, KEYS),
        lambda plan: {task.file.file_path for task in plan.tasks},
        lambda right, kept: kept >= right,
    ),
    "scan": Command(lambda lake: sidecar.scan(lake.table, KEYS), sorted_rows),
    "scan a file": Command(_rows_of, sorted_rows),
    "find": Command(
        lambda lake: sidecar.find(lake.table, {"k": 3}),
        lambda report: (report.answer, {file.file for file in report.files}),
        lambda right, found: found == right or (found[0] == "not proven" and found[1] <= right[1]),
    ),
    "verify": Command(lambda lake: sidecar.verify_table(lake.table, data=True), lambda result: None),
    "status": Command(lambda lake: sidecar.status_table(lake.table)),
    "inspect": Command(lambda lake: sidecar.inspect_file(lake.path("embedded.parquet"), lake.io)),
    "probe": Command(
        lambda lake: sidecar.probe_file(lake.path("embedded.parquet"), "k", 3, lake.io),
        lambda probe: denied(probe),
        lambda right, denied: denied <= right,
    ),
    "probe TABLE": Command(
        lambda lake: sidecar.probe_table(lake.table, "k", 3),
        lambda probe: denied(probe),
        lambda right, denied: denied <= right,
    ),
}


def denied(probe: Any) -> set[Any]:
    """The row groups that have no such value, as filters say."""
    return {(unit.file, unit.row_group) for unit in probe.units if unit.might_contain is False}


def is_covered(lake: Lake) -> bool:
    return "not listed in the sidecar" not in sidecar.plan(lake.table.refresh(), "k = 3").funnel.kept_because


def lose_a_statistics_file(lake: Lake) -> list[str]:
    """Delete the file of an entry of ours."""
    ours = [e for e in lake.table.metadata.statistics if not e.statistics_path.endswith("theirs.stats")]
    lake.real(ours[-1].statistics_path).unlink()
    return [ours[-1].statistics_path]


def rows(start: int, count: int, stride: int = 1) -> pa.Table:
    """Rows whose bytes hardly compress, with keys that a lookup finds in one place."""
    noise = np.random.default_rng(start).integers(0, 2**62, count)
    noise[: count // 2] = np.arange(start, start + (count // 2) * stride, stride)
    return pa.table({"k": pa.array(noise, pa.int64()), "s": pa.array([f"s{n % 5}" for n in range(count)])})


def write(path: Path, table: pa.Table) -> None:
    """A Parquet file with checksums of its pages: what a bit that flips in a page shows up by."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table,
        path,
        write_page_checksum=True,
        write_page_index=True,
        data_page_size=1 << 15,
        row_group_size=len(table) // 2,
        use_dictionary=["s"],
        compression="zstd",
    )


def prepare(door: str, folder: Path) -> Lake:
    """A lake in which each command has work: four days old but for its newest file, which no sidecar lists.

    An old file of ours is not named any more, entries are superseded, and one is of another writer.
    """
    table = open_door(door, folder).create_table("db.t", rows(0, 2).schema)
    lake = Lake(door, folder, table)
    for n, count in enumerate((SMALL, BIG, SMALL)):
        add(lake, n, count)
        sidecar.build(table, ["k"], kinds=["bloom", "page-index"], engine="local")
        if n == 0:
            unregister(table, table.refresh().metadata.statistics)
    add(lake, 3, SMALL)
    register_others(lake)
    metadata = lake.real(table.location()) / "metadata"
    (metadata / "1-of-others.stats").write_bytes(b"PFA1 theirs")
    for path in (lake.folder / "wh").rglob("*"):
        if path.is_file():
            written = path.stat().st_mtime - DAYS
            os.utime(path, (written, written))
    add(lake, 4, SMALL)
    plain = lake.real(lake.path("plain.parquet"))
    write(plain, rows(0, BIG))
    embedded = lake.path("embedded.parquet")
    sidecar.embed_file(lake.path("plain.parquet"), embedded, bloom=["k"], page_index=True, io=lake.io)
    sidecar.extract_files([embedded], lake.path("sidecar.puffin"), io=lake.io)
    return lake


def add(lake: Lake, n: int, count: int) -> None:
    path = f"{lake.table.location()}/data/{n}.parquet"
    write(lake.real(path), rows(100_000 * n, count))
    lake.table.refresh().add_files([path], check_duplicate_files=False)


def register_others(lake: Lake) -> None:
    """Another engine's sketch for the head."""
    snapshot = lake.table.refresh().current_snapshot()
    assert snapshot is not None
    path = f"{lake.table.location()}/metadata/{snapshot.snapshot_id}-theirs.stats"
    with lake.table.io.new_output(path).create() as stream:
        writer = PuffinWriter(stream, created_by="Another Engine 1.0")
        writer.add_blob(THETA, [1], snapshot.snapshot_id, 1, b"their sketch", "zstd", {"ndv": "5"})
        size, footer, _ = writer.finish()
    entry = {
        "snapshot-id": snapshot.snapshot_id,
        "statistics-path": path,
        "file-size-in-bytes": size,
        "file-footer-size-in-bytes": footer,
        "blob-metadata": [],
    }
    lake.table.update_statistics().set_statistics(StatisticsFile.model_validate(entry)).commit()


def reopen(lake: Lake) -> Lake:
    """The lake with a table that is loaded anew."""
    return lake._replace(table=open_door(lake.door, lake.folder).load_table("db.t"))


class Grid:
    """Runs commands on copies of one prepared lake, and tells what was wrong."""

    def __init__(self, door: str, folder: Path) -> None:
        self.door, self._kept, self._folder = door, folder / "kept", folder / "lake"
        self._folder.mkdir(parents=True)
        lake = prepare(door, self._folder)
        self._rows = sorted_rows(lake.table.refresh().scan().to_arrow())
        self._found = sorted_rows(lake.table.scan(KEYS).to_arrow())
        shutil.copytree(self._folder, self._kept)
        self._right = {name: self._answer(name) for name in COMMANDS}

    def _answer(self, name: str) -> Any:
        """What a command answers if nothing breaks."""
        restore(self._kept, self._folder)
        lake = reopen(Lake(self.door, self._folder, None))  # type: ignore[arg-type]
        COMMANDS[name].before(lake)
        return COMMANDS[name].answer(COMMANDS[name].run(lake))

    def case(self, name: str, mode: Mode, turn: int) -> tuple[bool, str | None]:
        """Break request ``turn`` of a command: whether there was such a request, and what was wrong."""
        command = COMMANDS[name]
        restore(self._kept, self._folder)
        lake = reopen(Lake(self.door, self._folder, None))  # type: ignore[arg-type]
        self._lost = command.before(lake)
        outcome: object = None
        began = time.monotonic()
        with local_storage(), FAULTS.armed(mode, turn, self._folder):
            try:
                outcome = command.run(lake)
            except SidecarError as error:
                outcome = error
            except Exception as error:
                return True, f"{FAULTS.broken}: a foreign error: {error!r}"
        took = time.monotonic() - began
        if FAULTS.broken is None:
            return False, None
        try:
            assert took < LONGEST, f"it took {took:.0f} seconds"
            self._judge(name, mode, outcome)
            if command.changes:
                self._check_table(name, mode)
            else:
                self._check_target(name, outcome)
        except Exception as error:
            return True, f"{FAULTS.broken}: the run said: {outcome}; then {error!r}"
        return True, None

    def cases(self, name: str, mode: Mode, turns: Iterator[int]) -> tuple[int, list[str]]:
        """Break each of ``turns`` while there is such a request: how many were, and what was wrong."""
        broken, wrong = 0, []
        for turn in turns:
            was, problem = self.case(name, mode, turn)
            if not was:
                break
            broken += 1
            if problem is not None:
                wrong.append(f"{self.door} {name} {mode.value} {turn}: {problem}")
        return broken, wrong

    def _judge(self, name: str, mode: Mode, outcome: object) -> None:
        if isinstance(outcome, SidecarError):
            named = OF_OTHER_BYTES if mode in (Mode.FLIPPED, Mode.SHORT) else ANSWERS
            assert isinstance(outcome, named), f"an error of another kind: {type(outcome).__name__}"
            assert outcome.file is not None or "'db.t'" in str(outcome), "the error names neither file nor table"
            return
        answer, right = COMMANDS[name].answer(outcome), self._right[name]
        assert COMMANDS[name].is_allowed(right, answer), f"a wrong answer: {str(answer)[:200]}"

    def _check_table(self, name: str, mode: Mode) -> None:
        lake = reopen(Lake(self.door, self._folder, None))  # type: ignore[arg-type]
        self._check(lake, mode)
        COMMANDS[name].run(lake)
        self._lost = []
        assert COMMANDS[name].is_done(reopen(lake)), "the next run leaves something to do"
        self._check(reopen(lake), mode)

    def _check(self, lake: Lake, mode: Mode) -> None:
        table, metadata = lake.table, lake.real(lake.table.location()) / "metadata"
        named = [entry.statistics_path for entry in table.metadata.statistics]
        assert (metadata / "1-of-others.stats").exists()
        assert [path for path in named if path.endswith("theirs.stats")], "the entry of another writer is lost"
        gone = [path for path in named if not lake.real(path).exists()]
        assert set(gone) <= set(self._lost), f"an entry names a file that is gone: {gone}"
        assert sorted_rows(table.scan().to_arrow()) == self._rows, "pyiceberg reads other rows"
        assert sorted_rows(sidecar.scan(table, KEYS)) == self._found, "a row is lost"
        if mode in (Mode.FLIPPED, Mode.SHORT):
            problems = sidecar.verify_table(table, data=True).problems
            assert not problems, f"verify finds: {problems}"

    def _check_target(self, name: str, outcome: object) -> None:
        """A target is whole or absent, nothing is left beside it, and the next run makes it."""
        lake = reopen(Lake(self.door, self._folder, None))  # type: ignore[arg-type]
        for target in ("out", "out.puffin"):
            if lake.real(lake.path(target)).exists():
                check_whole(lake, target)
                lake.real(lake.path(target)).unlink()
        COMMANDS[name].run(lake)


def check_whole(lake: Lake, target: str) -> None:
    result = sidecar.verify_file(lake.path(target), lake.io, data=True)
    assert not result.problems, f"a target is half written: {result.problems}"
    if target == "out":
        assert pq.read_table(lake.real(lake.path(target))).equals(pq.read_table(lake.real(lake.path("plain.parquet"))))


def modes_of(door: str) -> list[Mode]:
    return list(BREAKS)


def every(start: int, step: int) -> Iterator[int]:
    return itertools.count(start, step)


__all__ = ["COMMANDS", "Grid", "Request", "every", "modes_of"]
