"""What is asked of one file of another project, and what sidecar and other readers answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq

import sidecar
from scripts.torturing.foreign.asking import Asking
from scripts.torturing.foreign.cells import columns_of
from scripts.torturing.foreign.differences import AS_SIDECAR
from scripts.torturing.foreign.readers import Columns, Reader
from sidecar.errors import SidecarError
from sidecar.files import format_of
from sidecar.orc.tail import read_tail
from sidecar.parquet.footer import read_footer
from sidecar.reading.file_scanning import open_scan
from sidecar.results.choices import RebuiltKind
from sidecar.storage.opening import open_source
from tests.lost_values import duckdb_finds
from tests.reading.random_predicates import Column, Predicates
from tests.reading.random_predicates import columns_of as askable_columns

PREDICATES, VALUES, LEAVES = 24, 3, 40
"""Predicates of a file; values of a column that are looked up; columns that are indexed and looked up."""
SHOWN = 200
SLOW = ("parquet-java", "ORC Java")
MOST_CELLS = 500_000
"""Cells of a file whose values are compared, in Python."""


@dataclass
class FileQuestions(Asking):
    """Asks about the file ``path``."""

    readers: dict[str, Reader] = field(default_factory=dict)
    created_by: str = ""
    known: list[str] = field(default_factory=list)
    """The problems of the file itself."""
    columns: list[Column] = field(default_factory=list)
    """Those that predicates can ask."""

    def ask_all(self) -> None:
        self.suffix = f".{self.kind}"
        if self.kind not in ("parquet", "orc"):
            self.ours("inspect", lambda: sidecar.inspect(self.path).only, may_refuse=True)
            self.ours("verify", lambda: sidecar.verify(self.path), may_refuse=True)
            return
        is_large = cells_of(self.path) > MOST_CELLS
        self.theirs = {} if is_large else self.answers_of_all(self.path)
        info = self.ours("inspect", lambda: sidecar.inspect(self.path).only)
        self.created_by = getattr(info, "created_by", None) or ""
        self.known = self.problems("verify", self.path, data=False) + self.problems("verify --data", self.path)
        if is_large:
            return
        self.table = self.ours("rows", lambda: sidecar.scan(self.path, "true"))
        if self.table is not None:
            self.compare_rows(columns_of(self.table))
            self.columns = self.askable()
            self.scan("scan", self.path, PREDICATES)
            self.probe("probe", self.path)
        self.ask_for_copies()

    @property
    def kind(self) -> str:
        with closing(open_source(self.path)) as source:
            return format_of(source)

    def answers_of_all(self, path: str, without: Sequence[str] = ()) -> dict[str, Columns]:
        found = {}
        for name in [name for name in self.readers if name not in without]:
            self.say(f"reader {name}")
            # a panic of polars is no Exception
            with suppress(BaseException):
                found[name] = self.readers[name](path)
        return found

    def problems(self, question: str, path: str, data: bool = True, known: Iterable[str] = ()) -> list[str]:
        """The problems that ``verify`` finds, those that are known left out."""
        found = self.ours(question, lambda: sidecar.verify(path, data=data))
        texts = [
            f"{problem.column or ''}: {problem.problem}".replace(path, self.path)
            for problem in (() if found is None else found.problems)
        ]
        new = [text for text in dict.fromkeys(texts) if text not in known and text not in self.known]
        if new and self.theirs:
            self.differ(question, f"{len(new)} problems: " + "; ".join(new[:3]), self.reads)
        return texts

    def compare_rows(self, own: Columns, question: str = "rows") -> None:
        """Each column with that of every other reader, by position where they find as many columns."""
        readers = {name: _aligned(own, columns) for name, columns in self.theirs.items()}
        for name, columns in readers.items():
            if missing := [column for column in columns if column not in own]:
                self.differ(f"{question}: columns", f"{list(own)}", {name: f"also {missing}"})
        for column, values in own.items():
            answers = {name: columns[column] for name, columns in readers.items() if column in columns}
            if any(other != values for other in answers.values()):
                ours, theirs = _first_difference(values, answers)
                self.differ(f"{question} {column}", ours, theirs)

    def askable(self) -> list[Column]:
        """The columns that predicates can ask; a name that is there twice, or is none, cannot be spelled."""
        assert self.table is not None
        names, found = self.table.column_names, []
        texts = texts_of(self.path) if self.kind == "parquet" else set()
        for at, name in enumerate(names):
            with suppress(ValueError, pa.ArrowException, OverflowError):
                if name and names.count(name) == 1:
                    column = self.table.column(at)
                    if name in texts and pa.types.is_binary(column.type):  # ENUM is bytes to Arrow
                        column = column.cast(pa.string())
                    asked = askable_columns(pa.table({name: column}))
                    found += asked[:1] if isinstance(column.type, pa.BaseExtensionType) else asked  # VARIANT
        return [one for one in found if one.is_text or not one.can_compare or plain_name(one) not in texts]

    def scan(self, question: str, path: str, count: int) -> None:
        """Random predicates: the positions and rows that meet them, in Python's eyes."""
        if not self.columns:
            return
        assert self.table is not None
        source, whole = Predicates(self.columns, random.Random(self.seed)), columns_of(self.table)
        cells = self.table.num_rows * self.table.num_columns
        for _ in range(min(count, 4 * len(self.columns), 2 + 4 * MOST_CELLS // (cells + 1))):
            text, truth = source.next()
            wanted = np.flatnonzero(truth).tolist()
            found = self.ours(f"{question}: {text}", lambda text=text: _rows_found(path, text))
            if found is None:
                continue
            positions, rows = found
            if positions != wanted:
                lost, foreign = sorted({*wanted} - {*positions}), sorted({*positions} - {*wanted})
                self.differ(
                    f"{question}: {text}", f"rows lost: {lost[:9]}, too many: {foreign[:9]}", {"Python": "truth"}
                )
            elif rows is not None and rows != {name: [cells[at] for at in wanted] for name, cells in whole.items()}:
                self.differ(f"{question}: {text}", "other values than a full read", {"Python": "truth"})

    def values(self) -> Iterator[tuple[Column, str, int, Any]]:
        """Some values of each column that can be looked up, as text, with a row and the cell."""
        rng = random.Random(self.seed)
        for column in [column for column in self.columns if column.can_compare][:LEAVES]:
            rows = [at for at, cell in enumerate(column.cells) if cell is not None and cell == cell]
            for at in rng.sample(rows, min(VALUES, len(rows))):
                cell = column.cells[at]
                if column.can_spell(cell):
                    text = column.spell(cell)
                    yield column, text[1:-1].replace("''", "'") if text[:1] == "'" else text, at, cell

    def probe(self, question: str, path: str, fields: dict[str, int] | None = None) -> None:
        """Values that are there are not denied; ``fields``: the columns of a sidecar."""
        groups = _row_groups(self.path)
        for column, text, row, _ in self.values():
            name = plain_name(column)
            asked = name if fields is None else str(fields.get(name))
            if asked == "None":
                continue
            call = partial(sidecar.probe, path, asked, text)
            found = self.ours(f"{question} {name} {text!r}", call, may_refuse=fields is not None)
            if found is None:
                continue
            number, place = next((n, one) for n, (one, start, stop) in enumerate(groups) if start <= row < stop)
            answers = {(unit.stripe, unit.row_group): unit.might_contain for unit in found.only.units}
            # a sidecar numbers the row groups of an ORC file from its start
            if answers.get(place, answers.get((None, number))) is False:
                self.differ(f"{question} {name} {text!r}", "denied", {"Python": f"is in row {row}"})

    def ask_for_copies(self) -> None:
        """Indexes come in and out of the file in all ways, and each copy reads as the file does."""
        leaves = _leaves(self.path, self.kind)
        options: dict[str, Any] = {} if self.kind == "orc" else {"page_index": True}
        source, out = self.path, self.out
        bare = self.copy("strip", "bare", lambda to: sidecar.strip(source, to).only)
        full = None
        if leaves or options:  # an ORC file may have no column
            full = self.copy("embed", "full", lambda to: sidecar.embed(source, into=to, bloom=leaves, **options).only)
        self.duckdb_lookups(full)
        for at, path in enumerate(path for path in (source, full) if path):
            target = out(f"{at}.puffin")
            report = self.ours("extract", lambda p=path, t=target: sidecar.extract([p], t), may_refuse=True)
            if report is None:
                continue
            self.sidecar_of(path, target, report.fields)
            back = partial(_restored, target)
            # a file without statistics is known by its path alone
            if not bare or not self.copy("embed --from", f"bare{at}", partial(back, bare), may_refuse=True):
                self.copy("embed --from", f"back{at}", partial(back, path))
        if full:
            other: RebuiltKind = "orc" if self.kind == "parquet" else "parquet"
            target = out("rebuilt.puffin")
            rebuilt = self.ours("convert --kind", lambda: sidecar.convert([full], target, as_=other), may_refuse=True)
            if rebuilt is not None:
                self.sidecar_of(full, target, None)
            self.convert_to_the_other(full)

    def out(self, name: str) -> str:
        path = self.folder / name
        path.unlink(missing_ok=True)
        return str(path)

    def copy(self, question: str, name: str, write: Callable[[str], object], may_refuse: bool = False) -> str | None:
        """Write a copy and ask about it; returns its path if there is one. Only ``full`` ones are read by Java."""
        target = self.out(f"{name}{self.suffix}")
        if self.ours(question, lambda: write(target), may_refuse) is None:
            return None
        self.problems(f"{question}, verify --data", target)
        again = self.answers_of_all(target, without=() if name == "full" else SLOW)
        for reader, columns in self.theirs.items():
            if again.get(reader) != columns and (name == "full" or reader not in SLOW):
                said = "another answer" if reader in again else "no answer"
                self.differ(f"{question}, read", "an equal copy", {reader: said})
        if self.table is not None:
            self.scan(f"{question}, scan", target, PREDICATES // 4)
            self.probe(f"{question}, probe", target)
        return target

    def duckdb_lookups(self, path: str | None) -> None:
        """DuckDB, which believes filters, finds the values in the copy that it finds in the file."""
        if path is None or "DuckDB" not in self.theirs:
            return
        for column, text, _, cell in self.values():
            if (
                type(cell) not in (int, str, float)
                or "." in column.name
                or column.name.strip('"') not in self.theirs["DuckDB"]
            ):
                continue
            name = column.name if column.name[0] == '"' else f'"{column.name}"'
            with suppress(Exception):
                before, now = (duckdb_finds(Path(p), name, [cell]) for p in (self.path, path))
                if before != now:
                    self.differ(f"embed, DuckDB {name} {text!r}", "an equal copy", {"DuckDB": f"{before}, then {now}"})

    def sidecar_of(self, path: str, target: str, fields: dict[str, int] | None) -> None:
        """A sidecar of a file is sound, agrees with it, and denies none of its values."""
        self.problems("sidecar, verify", target, data=False)
        found = self.ours("sidecar, verify --against", lambda: sidecar.verify(target, against=[path]))
        faults = {f"sidecar: {text.partition(': ')[2]}" for text in self.known}
        new = [one.problem for one in (() if found is None else found.problems) if one.problem not in faults]
        if new:
            self.differ("sidecar, verify --against", "; ".join(new[:3]), {"Python": "its own"})
        if fields is not None:
            self.probe("sidecar, probe", target, fields)

    def convert_to_the_other(self, full: str) -> None:
        """Filters like those of the file in a file of the other format with the same rows."""
        if self.table is None:
            return
        other = "orc" if self.kind == "parquet" else "parquet"
        data, target = self.out(f"rows.{other}"), self.out(f"converted.{other}")
        try:
            (po if other == "orc" else pq).write_table(self.table, data)
            before = columns_of(sidecar.scan(data, "true"))
        except Exception:  # ORC has not all types
            return
        report = self.ours("convert", lambda: sidecar.convert([full], target, onto=data), may_refuse=True)
        if report is None:
            return
        if columns_of(sidecar.scan(target, "true")) != before:
            self.differ("convert, read", "other rows", {"sidecar": "those of the data file"})
        found = sidecar.verify(data, data=True).problems
        self.problems("convert, verify --data", target, known=[f"{one.column or ''}: {one.problem}" for one in found])


def _aligned(own: Columns, columns: Columns) -> Columns:
    return dict(zip(own, columns.values(), strict=True)) if len(own) == len(columns) else columns


def _first_difference(values: list[Any], answers: dict[str, list[Any]]) -> tuple[str, dict[str, str]]:
    different = {name: other for name, other in answers.items() if other != values}
    lengths = {len(values), *map(len, different.values())}
    if len(lengths) > 1:
        said = {name: AS_SIDECAR if name not in different else f"{len(other)} rows" for name, other in answers.items()}
        return f"{len(values)} rows", said
    other = next(iter(different.values()))
    at = next(at for at, cell in enumerate(values) if cell != other[at])
    said = {name: AS_SIDECAR if name not in different else repr(cells[at])[:SHOWN] for name, cells in answers.items()}
    return f"row {at}: {values[at]!r}"[:SHOWN], said


def _rows_found(path: str, text: str) -> tuple[list[int], Columns | None]:
    with open_scan(path, text) as scan:
        found = list(scan.found())
    positions = [at for part in found for at in part.positions.tolist()]
    return positions, columns_of(pa.concat_tables([part.rows for part in found])) if found else None


def cells_of(path: str) -> int:
    """The rows of a file times its leaf columns; 0 if it cannot be opened."""
    with suppress(SidecarError), closing(open_source(path)) as source:
        if format_of(source) == "parquet":
            footer = read_footer(source)
            return len(footer.columns) * max(footer.num_rows, sum(group.num_rows for group in footer.row_groups))
        tail = read_tail(source)
        return len(tail.columns) * tail.num_rows
    return 0


def _row_groups(path: str) -> list[tuple[tuple[int | None, int], int, int]]:
    """The rows of each row group, in ORC of each stripe."""
    with closing(open_source(path)) as source:
        if format_of(source) == "parquet":
            sizes = [((None, at), group.num_rows) for at, group in enumerate(read_footer(source).row_groups)]
        else:
            tail, sizes = read_tail(source), []
            for number, stripe in enumerate(tail.stripes):
                step = stripe.stride or stripe.num_rows
                for at, start in enumerate(range(0, stripe.num_rows, step or 1)):
                    sizes.append(((number, at), min(step, stripe.num_rows - start)))
    ends = np.cumsum([size for _, size in sizes], dtype=np.int64).tolist()
    return [(place, end - size, end) for (place, size), end in zip(sizes, ends, strict=True)]


def plain_name(column: Column) -> str:
    """A column's name without quotes."""
    return column.name.replace('"', "")


def texts_of(path: str) -> set[str]:
    """The leaf columns that are texts to sidecar."""
    with closing(open_source(path)) as source:
        return {leaf.path for leaf in read_footer(source).columns if leaf.iceberg_type == "string"}


def _restored(sidecar_path: str, source: str, target: str) -> object:
    return sidecar.embed(source, into=target, from_=sidecar_path).only


def _leaves(path: str, kind: str) -> list[str]:
    with suppress(SidecarError), closing(open_source(path)) as source:
        if kind == "parquet":
            paths = [leaf.path for leaf in read_footer(source).columns]
            return [path for path in paths if paths.count(path) == 1][:LEAVES]
        return [column.path for column in read_tail(source).columns[1:] if not column.is_compound][:LEAVES]
    return []
