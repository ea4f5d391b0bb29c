"""Commands on one prepared lake whose storage breaks a request, and what must be true whatever became of them.

A new command is a line in :data:`COMMANDS`. The oracle: the right answer or a named error of ours. Then the table reads
right, no file that somebody needs is gone, a target is whole or absent, and the next run ends well. A bit that flips
where no checksum covers it is not seen by any reader; rows are those that pyiceberg reads of the same bytes then.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table

import sidecar
from sidecar.errors import CommitConflictError, DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError
from sidecar.iceberg.statistics_files.registering import unregister
from tests.faults.faults import Flip, Mode
from tests.maintenance.cases import register_others

NOW = timedelta(0)
OF_OTHERS = "1-of-others.stats"
"""A file of others in the metadata folder."""
NEWEST = "newest.txt"
"""A file in the metadata folder that is younger than all others."""
OTHER_BYTES = (Mode.FLIPPED, Mode.SHORT)
"""Modes in which bytes arrive that were not stored so."""
UNTRUE = (*OTHER_BYTES, Mode.STALE)
"""Modes with answers that are not true."""
BIG, SMALL = 40_000, 60
"""Rows of a file that sidecar reads page by page, and of one that it hands to pyiceberg."""
AMONG_FIRST = 12
"""A request that tests choose is one of so many."""
LONGEST = 60.0
"""Seconds after which a command counts as hanging. It takes less than one, on S3 a few for attempts of the client."""
ANSWERS = (StorageError, DamagedFileError, CommitConflictError)
OF_OTHER_BYTES = (*ANSWERS, UnsupportedFeatureError)
"""Errors that name what happened: of storage, and of bytes that are not those that were written."""


class Place(Protocol):
    """Where a lake is: files that can be looked at and put back without a broken request."""

    name: str
    modes: Sequence[Mode]
    faults: Any

    def catalog(self) -> Any: ...
    def location(self, name: str) -> str: ...
    def io(self, table: Any) -> Any: ...
    def put(self, location: str, data: bytes) -> None: ...
    def get(self, location: str) -> bytes: ...
    def exists(self, location: str) -> bool: ...
    def delete(self, location: str) -> None: ...
    def keep(self) -> None: ...
    def restore(self) -> None: ...
    def is_as_kept(self) -> bool: ...
    def breaking(self, mode: Mode, turn: int) -> AbstractContextManager[None]: ...


class Lake(NamedTuple):
    """The prepared table, and files beside it."""

    place: Place
    table: Table

    def path(self, name: str) -> str:
        """The location of a file that is not the table's."""
        return self.place.location(name)

    @property
    def io(self) -> Any:
        """What reaches these files."""
        return self.place.io(self.table)


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


ROWS = pa.schema([("k", pa.int64()), ("s", pa.string())])


def sorted_rows(found: pa.Table) -> pa.Table:
    """Rows that are equal to others whatever their order, and whatever types Arrow has for the same values."""
    return found.select(ROWS.names).cast(ROWS).sort_by("k")


def _embed(lake: Lake) -> Any:
    return sidecar.embed(
        lake.path("plain.parquet"), into=lake.path("out"), bloom=["k"], page_index=True, io=lake.io
    ).only


def _rows_of(lake: Lake) -> Any:
    return sidecar.scan(lake.path("embedded.parquet"), KEYS, io=lake.io)


LOOKED_UP = [3, 7, 100_003, 200_005]
KEYS = f"k in ({', '.join(map(str, LOOKED_UP))})"
COMMANDS = {
    "build": Command(
        lambda lake: sidecar.build(lake.table, ["k"], kinds=["bloom", "page-index", "theta"], engine="local"),
        is_done=lambda lake: is_covered(lake),
        changes=True,
    ),
    "refresh": Command(
        lambda lake: sidecar.refresh(lake.table, engine="local"), is_done=lambda lake: is_covered(lake), changes=True
    ),
    "expire": Command(
        lambda lake: sidecar.expire(lake.table, older_than=NOW),
        is_done=lambda lake: not sidecar.expire(lake.table.refresh(), older_than=NOW, dry_run=True).expired,
        changes=True,
    ),
    "gc": Command(
        lambda lake: sidecar.gc(lake.table, older_than=NOW, force=True),
        is_done=lambda lake: not sidecar.gc(lake.table, older_than=NOW, force=True, dry_run=True).files,
        changes=True,
    ),
    "embed TABLE": Command(
        lambda lake: sidecar.embed(lake.table, bloom=["k"]),
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
        lambda lake: (
            sidecar.embed(
                lake.path("plain.parquet"), into=lake.path("out"), from_=lake.path("sidecar.puffin"), io=lake.io
            ).only
        )
    ),
    "strip": Command(lambda lake: sidecar.strip(lake.path("embedded.parquet"), lake.path("out"), io=lake.io).only),
    "extract": Command(
        lambda lake: sidecar.extract([lake.path("embedded.parquet")], lake.path("out.puffin"), io=lake.io)
    ),
    "convert": Command(
        lambda lake: sidecar.convert([lake.path("sidecar.puffin")], lake.path("out.puffin"), fpp=0.2, io=lake.io)
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
    "verify": Command(lambda lake: sidecar.verify(lake.table, data=True), lambda result: None),
    "status": Command(lambda lake: sidecar.status(lake.table)),
    "inspect": Command(lambda lake: sidecar.inspect(lake.path("embedded.parquet"), io=lake.io).only),
    "probe": Command(
        lambda lake: sidecar.probe(lake.path("embedded.parquet"), "k", 3, io=lake.io).only,
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
    lake.place.delete(ours[-1].statistics_path)
    return [ours[-1].statistics_path]


def rows(start: int, count: int, stride: int = 1) -> pa.Table:
    """Rows whose bytes hardly compress, with keys that a lookup finds in one place."""
    noise = np.random.default_rng(start).integers(0, 2**62, count)
    noise[: count // 2] = np.arange(start, start + (count // 2) * stride, stride)
    return pa.table({"k": noise, "s": [f"s{n % 5}" for n in range(count)]}, ROWS)


def parquet(table: pa.Table) -> bytes:
    """A Parquet file with checksums of its pages: what a bit that flips in a page shows up by."""
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        write_page_checksum=True,
        write_page_index=True,
        data_page_size=1 << 15,
        row_group_size=len(table) // 2,
        use_dictionary=["s"],
        compression="zstd",
    )
    return file.getvalue()


def prepare(place: Place) -> Lake:
    """A lake in which each command has work.

    No sidecar lists the newest files. A file of ours is not named any more, and one of others neither. An entry is
    superseded, and one is of another writer.
    """
    table = place.catalog().create_table("db.t", rows(0, 2).schema)
    lake = Lake(place, table)
    for n, count in enumerate((SMALL, BIG, SMALL)):
        add(lake, n, count)
        sidecar.build(table, ["k"], kinds=["bloom", "page-index"], engine="local")
        if n == 0:
            unregister(table, table.refresh().metadata.statistics)
    add(lake, 3, SMALL)
    register_others(lake.table)
    place.put(f"{table.location()}/metadata/{OF_OTHERS}", b"PFA1 theirs")
    add(lake, 4, SMALL)
    place.put(lake.path("plain.parquet"), parquet(rows(0, BIG)))
    embedded = lake.path("embedded.parquet")
    sidecar.embed(lake.path("plain.parquet"), into=embedded, bloom=["k"], page_index=True, io=lake.io)
    sidecar.extract([embedded], lake.path("sidecar.puffin"), io=lake.io)
    place.put(f"{table.location()}/metadata/{NEWEST}", b"gc takes its time for that of the storage")
    return lake


def add(lake: Lake, n: int, count: int) -> None:
    path = f"{lake.table.location()}/data/{n}.parquet"
    lake.place.put(path, parquet(rows(100_000 * n, count)))
    lake.table.refresh().add_files([path], check_duplicate_files=False)


class Grid:
    """Runs commands on copies of one prepared lake, and tells what was wrong."""

    def __init__(self, place: Place) -> None:
        self.place = place
        lake = prepare(place)
        self._rows = sorted_rows(lake.table.refresh().scan().to_arrow())
        self._found = sorted_rows(lake.table.scan(KEYS).to_arrow())
        self._plain = pq.read_table(io.BytesIO(place.get(lake.path("plain.parquet"))))
        place.keep()
        self._right: dict[str, Any] = {}
        self._lost: list[str] = []
        self._is_checked = False
        self.unchecked = 0
        """Flipped bits that no checksum covers."""

    def _begin(self, name: str) -> Lake:
        """The prepared lake, for a command."""
        self.place.restore()
        lake = self.open()
        self._lost = COMMANDS[name].before(lake)
        return lake

    def open(self) -> Lake:
        """The lake with a table that is loaded anew."""
        return Lake(self.place, self.place.catalog().load_table("db.t"))

    def _right_answer(self, name: str) -> Any:
        """What a command answers if nothing breaks."""
        if name not in self._right:
            self._right[name] = COMMANDS[name].answer(COMMANDS[name].run(self._begin(name)))
            self._check_storage(name, Mode.ERROR)
        return self._right[name]

    def case(self, name: str, mode: Mode, turn: int) -> tuple[bool, str | None]:
        """Break request ``turn`` of a command: whether there was such a request, and what was wrong."""
        self._right_answer(name)
        lake, faults = self._begin(name), self.place.faults
        outcome: object = None
        began = time.monotonic()
        with self.place.breaking(mode, turn):
            try:
                outcome = COMMANDS[name].run(lake)
            except SidecarError as error:
                outcome = error
            except Exception as error:
                return True, f"{faults.broken}: a foreign error: {error!r}"
        took = time.monotonic() - began
        if faults.broken is None:
            is_right = not isinstance(outcome, SidecarError) and COMMANDS[name].answer(outcome) == self._right[name]
            is_right &= not (COMMANDS[name].changes and self.place.is_as_kept())
            return False, None if is_right else f"a run that nothing broke: {str(outcome)[:200]}"
        try:
            assert took < LONGEST, f"it took {took:.0f} seconds"
            self._note_flip()
            self._judge(name, mode, outcome)
            if faults.flip is not None and not self._is_checked:
                return True, None  # no reader can see it, and what was made of it cannot be right
            self._check_storage(name, mode)
        except Exception as error:
            return True, f"{faults.broken}: the run said: {outcome}; then {error!r}"
        return True, None

    def cases(self, name: str, mode: Mode, turns: Iterable[int]) -> tuple[int, list[str]]:
        """Break each of ``turns`` while there is such a request: how many were, and what was wrong."""
        broken, wrong = 0, []
        for turn in turns:
            was, problem = self.case(name, mode, turn)
            broken += was
            if problem is not None:
                wrong.append(f"{self.place.name}, {name}, {mode.value}, request {turn}: {problem}")
            if not was:
                break
        return broken, wrong

    def _judge(self, name: str, mode: Mode, outcome: object) -> None:
        if isinstance(outcome, SidecarError):
            named = OF_OTHER_BYTES if mode in OTHER_BYTES else ANSWERS
            assert isinstance(outcome, named), f"an error of another kind: {type(outcome).__name__}"
            assert outcome.file is not None or "'db.t'" in str(outcome), "the error names neither file nor table"
            return
        flip = self.place.faults.flip
        if flip is not None and not self._is_checked:
            self._judge_unchecked(name, flip, outcome)
            return
        answer, right = COMMANDS[name].answer(outcome), self._right[name]
        assert COMMANDS[name].is_allowed(right, answer), f"a wrong answer: {str(answer)[:200]}"

    def share(self, name: str, modes: Iterable[Mode], seed: str) -> tuple[int, list[str]]:
        """Break one of the first requests of a command in each mode; returns what :meth:`cases` does."""
        chosen, broken, wrong = random.Random(seed), 0, []
        for mode in modes:
            done, problems = self.cases(name, mode, [chosen.randrange(AMONG_FIRST)])
            if not done:
                done, problems = self.cases(name, mode, [0])
            broken += done
            wrong += problems
        return broken, wrong

    def _note_flip(self) -> None:
        """Note whether a checksum covers the bit: those of our own files, and of pages that have one, as Arrow says."""
        flip, self._is_checked = self.place.faults.flip, False
        if flip is None or not self.place.exists(flip.path):
            return
        data = self.place.get(flip.path)
        self._is_checked = data.startswith(b"PFA1")
        if data.startswith(b"PAR1"):
            try:
                pq.read_table(io.BytesIO(flip.applied(data)), page_checksum_verification=True)
            except Exception as error:
                self._is_checked = "CRC" in str(error)

    def _judge_unchecked(self, name: str, flip: Flip, outcome: object) -> None:
        """Rows are right, or those that pyiceberg reads of the same bytes, with an error or without."""
        self.unchecked += 1
        if not name.startswith("scan"):
            return
        answer = COMMANDS[name].answer(outcome)
        if answer == self._right[name] or not self.place.exists(flip.path):
            return
        self.place.restore()
        self.place.put(flip.path, flip.applied(self.place.get(flip.path)))
        try:
            theirs = self._theirs(name)
        except Exception:
            return  # they cannot read it at all
        finally:
            self.place.restore()
        assert answer == theirs, f"rows that pyiceberg does not read of these bytes: {len(answer)}"

    def _theirs(self, name: str) -> Any:
        lake = self.open()
        if name == "scan a file":
            data = self.place.get(lake.path("embedded.parquet"))
            found = pq.read_table(io.BytesIO(data), filters=pc.field("k").isin(LOOKED_UP))
        else:
            found = lake.table.scan(KEYS).to_arrow()
        return sorted_rows(found)

    def _check_storage(self, name: str, mode: Mode) -> None:
        """Check what a run left, and the next run.

        If it left all files alone, the next run is that of the next case. After an answer that was not true, it is
        made at once: the process may have kept that answer.
        """
        if self.place.is_as_kept():
            if mode in UNTRUE:
                answer = COMMANDS[name].answer(COMMANDS[name].run(self.open()))
                assert answer == self._right[name], f"the next run has a wrong answer: {str(answer)[:200]}"
        elif COMMANDS[name].changes:
            self._check_table(name, mode)
        else:
            self._check_target(name)

    def _check_table(self, name: str, mode: Mode) -> None:
        lake = self.open()
        self._check(lake, mode)
        COMMANDS[name].run(lake)
        self._lost = []
        assert COMMANDS[name].is_done(self.open()), "the next run leaves something to do"
        self._check(self.open(), mode)

    def _check(self, lake: Lake, mode: Mode) -> None:
        table = lake.table
        named = [entry.statistics_path for entry in table.metadata.statistics]
        assert self.place.exists(f"{table.location()}/metadata/{OF_OTHERS}"), "a file of others is gone"
        assert [path for path in named if path.endswith("theirs.stats")], "the entry of another writer is lost"
        gone = {path for path in named if not self.place.exists(path)}
        assert gone <= set(self._lost), f"an entry names a file that is gone: {gone}"
        assert sorted_rows(table.scan().to_arrow()) == self._rows, "pyiceberg reads other rows"
        assert sorted_rows(sidecar.scan(table, KEYS)) == self._found, "a row is lost"
        if mode in OTHER_BYTES and not self._lost:
            # After "embed TABLE" the sidecar may list none of the files, as the report says: no value is looked up.
            is_listed = sidecar.plan(table, KEYS).funnel.listed > 0
            problems = sidecar.verify(table, data=is_listed).problems
            assert not problems, f"verify finds: {problems}"

    def _check_target(self, name: str) -> None:
        """A target is whole or absent, and the next run makes it."""
        lake = self.open()
        for target in ("out", "out.puffin"):
            location = lake.path(target)
            if self.place.exists(location):
                against = None if target == "out" else [lake.path("embedded.parquet")]
                problems = sidecar.verify(location, io=lake.io, data=target == "out", against=against).problems
                assert not problems, f"a target is half written: {problems}"
                if target == "out":
                    assert pq.read_table(io.BytesIO(self.place.get(location))).equals(self._plain), "other rows"
                self.place.delete(location)
        COMMANDS[name].run(lake)
