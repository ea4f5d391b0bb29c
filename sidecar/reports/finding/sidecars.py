"""Asks the sidecar files of a table which of them still admit values: registered ones and ones that are left over.

A sidecar lists data files as they were when it was built. Its filters, sketches and bounds keep what these files had,
also after the files left the table. Files are found in the metadata (the statistics file of each snapshot) and in the
metadata folder, by the endings of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.bundle.filter_answers import FilterAnswers
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.errors import SidecarError, StorageError, UsageError
from sidecar.filters.array_hash import theta_hashes
from sidecar.filters.arrays import Ordinals
from sidecar.filters.arrow_types import arrow_type
from sidecar.filters.column_types import ColumnType
from sidecar.filters.float32 import nearest_float32
from sidecar.filters.theta import LARGEST_LG_K, ThetaSketch
from sidecar.iceberg.paths import normal_path
from sidecar.iceberg.resolve import fields_of_keys
from sidecar.iceberg.statistics_files.write_statistics import statistics_folder
from sidecar.many_files.find import PUFFIN_ENDINGS, find_files
from sidecar.puffin.types import THETA
from sidecar.questions.bounds import Bounds
from sidecar.reports.finding.results import SidecarAsked, ValueTrace
from sidecar.reports.finding.traces import NamedValues, trace, values_in_stored_index
from sidecar.reports.finding.values import ValueQuestion

NO_LOOKUP = "filters do not say whether they have the value"
_INT_LIMIT = 1 << 31


class SidecarSearch:
    """Asks all sidecar files of a table. :attr:`traces` has the bounds in them that are one of the values."""

    def __init__(self, table: Table, access: Access) -> None:
        self.traces: list[ValueTrace] = []
        self._table = table
        self._access = access

    def ask(self, questions: Sequence[ValueQuestion]) -> list[SidecarAsked]:
        """Return the answer of each file for each question; files without an index of the column are left out."""
        found: list[SidecarAsked] = []
        for path, snapshots in self._files():
            found += self._of_file(path, snapshots, questions)
        return found

    def _files(self) -> list[tuple[str, list[int]]]:
        """Return the paths of statistics files, and the snapshots for which they are registered."""
        registered: dict[str, tuple[str, list[int]]] = {}
        for entry in self._table.metadata.statistics:
            path = entry.statistics_path
            registered.setdefault(normal_path(path), (path, []))[1].append(entry.snapshot_id)
        for path in self._in_folder():
            registered.setdefault(normal_path(path), (path, []))
        return list(registered.values())

    def _in_folder(self) -> Iterable[str]:
        try:
            return find_files(statistics_folder(self._table), self._access, endings=PUFFIN_ENDINGS).files
        except (StorageError, UsageError):  # it cannot be listed, or has no such file
            return ()

    def _of_file(self, path: str, snapshots: list[int], questions: Sequence[ValueQuestion]) -> Iterator[SidecarAsked]:
        try:
            opened = self._open(path)
        except SidecarError as error:
            for question in questions:
                yield _answer(path, snapshots, question, problem=str(error))
            return
        with closing(opened) as sidecar:
            for question in questions:
                answer = self._answer_of(path, snapshots, sidecar, question)
                if answer is not None:
                    yield answer

    def _open(self, path: str) -> SidecarFile:
        source = self._access.open(path)
        try:
            sidecar = SidecarFile.open(source, columns=self._table.schema().find_column_name)
        except SidecarError:
            source.close()
            raise
        sidecar.use_keys(self._access.keys, fields_of_keys(self._table, self._access.keys))
        return sidecar

    def _answer_of(
        self, path: str, snapshots: list[int], sidecar: SidecarFile, question: ValueQuestion
    ) -> SidecarAsked | None:
        """Return the answer of a file; ``None`` if it knows nothing of the column."""
        filters, field_id = question.question.for_filters, question.field_id
        problems = list(filters.notes or (NO_LOOKUP,)) if _asks_nothing(sidecar, question) else []
        # A filter is asked even if the column would not be found in its file in the same way today.
        answers = FilterAnswers(sidecar, filters.condition, None, sidecar.warnings)
        numbers = np.arange(sidecar.num_files)
        found = answers.of_files(numbers)
        traces = [*_in_file_bounds(path, sidecar, question)]
        self.traces += (one for _, one in traces)
        units = answers.of_units(np.arange(sidecar.num_units)).nonzero()[0]
        self.traces += _in_indexes(path, sidecar, question, units)
        files = sidecar.count_files_about(field_id, {number for number, _ in traces})
        admits = set(_paths(sidecar, numbers[found.may_match & ~found.unable]))
        sketch_has, unread = _sketches(sidecar, question)
        problems += [*unread, *sidecar.warnings]
        if not (files or problems or sketch_has):
            return None
        problem = "; ".join(dict.fromkeys(problems)) or None
        return _answer(path, snapshots, question, files, sorted(admits), sketch_has, problem)


def _asks_nothing(sidecar: SidecarFile, question: ValueQuestion) -> bool:
    """Return whether there are filters of the column, and none can be asked."""
    return question.question.for_filters.condition is None and question.field_id in sidecar.filtered_fields


def _paths(sidecar: SidecarFile, numbers: Ordinals) -> list[str]:
    entries = zip(numbers.tolist(), sidecar.entries(numbers.tolist()), strict=True)
    return [f"file {number} of the sidecar" if one is None else one.path for number, one in entries]


def _in_file_bounds(path: str, sidecar: SidecarFile, question: ValueQuestion) -> Iterator[tuple[int, ValueTrace]]:
    """Yield the traces in the bounds that the sidecar records of each of its files, with the number of the file."""
    bounds = question.question.bounds
    values = NamedValues(question, bounds.column(question.field_id))
    table = sidecar.bounds(question.field_id, np.arange(sidecar.num_files)) if values else None
    if table is None:
        return
    for number, sides in enumerate(zip(table["lower"].to_pylist(), table["upper"].to_pylist(), strict=True)):
        low, high = (None if raw is None else bounds.value(question.field_id, raw) for raw in sides)
        for text, bound, cut in values.of(Bounds.of_one(low, high)):
            (of,) = _paths(sidecar, np.array([number]))
            yield number, trace(question, path, of, "file bounds in a sidecar", text, bound, cut)


def _in_indexes(path: str, sidecar: SidecarFile, question: ValueQuestion, units: Ordinals) -> Iterator[ValueTrace]:
    """Yield the traces in the page indexes and row indexes of those ``units`` that filters do not exclude."""
    stored = sidecar.stored_indexes(question.field_id, units)
    of_file = sidecar.files_of_units(np.array(sorted(stored), np.int64)).tolist()
    known = [number for number in of_file if number >= 0]
    entries = dict(zip(known, sidecar.entries(known), strict=True))
    for unit, number in zip(sorted(stored), of_file, strict=True):
        entry = entries.get(number)
        at = unit - int(sidecar.unit_ranges[number])
        rows = entry.units[at].rows if entry is not None and at < len(entry.units) else 0
        of = "a file of a segment" if entry is None else entry.path
        with suppress(SidecarError):  # an index that cannot be decoded has no bounds
            for text, bound, cut in values_in_stored_index(question, stored[unit], rows):
                yield trace(question, path, of, "page index in a sidecar", text, bound, cut)


def _sketches(sidecar: SidecarFile, question: ValueQuestion) -> tuple[list[str], list[str]]:
    """Return the values whose hash is in a sketch of the column, and why sketches could not be read."""
    found: dict[str, None] = {}
    problems: list[str] = []
    for blob in sidecar.puffin.metadata.blobs:
        if blob.type != THETA or blob.fields != (question.field_id,):
            continue
        try:
            sketch = ThetaSketch.from_bytes(sidecar.puffin.read_blob(blob), LARGEST_LG_K, sidecar.source.name)
        except SidecarError as error:
            problems.append(str(error))
            continue
        retained = set(sketch.retained.tolist())
        found |= {text: None for text, one in question.literals.items() if retained & _hashes(one.value, question)}
    return list(found), problems


def _hashes(value: Any, question: ValueQuestion) -> set[int]:
    """Return the hashes of a value in the column's type, and in the type that it may have had before a promotion."""
    kinds = [str(question.column.type)]
    if kinds == ["long"] and -_INT_LIMIT <= value < _INT_LIMIT:
        kinds.append("int")
    if kinds == ["double"] and nearest_float32(value) == value:
        kinds.append("float")
    values = [0.0, -0.0] if isinstance(value, float) and value == 0 else [value]
    return {hash_ for kind in kinds for hash_ in theta_hashes(_array(values, kind), kind).tolist()}


def _array(values: list[Any], kind: str) -> pa.Array[Any]:
    column = ColumnType.parse(kind)
    if kind in ("string", "binary"):
        return pa.array(values, pa.string() if kind == "string" else pa.binary())
    wanted = arrow_type(column)
    if column.family in ("date", "time", "timestamp"):
        return pa.array(values, pa.int32() if column.width == 4 else pa.int64()).cast(wanted)
    return pa.array(values, wanted)


def _answer(
    path: str,
    snapshots: list[int],
    question: ValueQuestion,
    files: int = 0,
    admits: list[str] | None = None,
    sketch_has: list[str] | None = None,
    problem: str | None = None,
) -> SidecarAsked:
    return SidecarAsked(
        file=path,
        registered_for=snapshots,
        column=question.name,
        field_id=question.field_id,
        files=files,
        admits=admits or [],
        sketch_has=sketch_has or [],
        problem=problem,
    )
