"""Looks up one value in the filters of a sidecar file, without the table that it belongs to.

The answer is about the data files as they were when the sidecar was built. Whether they are still in the table, and
whether the column is still found in the same way, only the table knows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sidecar.bundle.columns import NamedColumns
from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.listed_files import check_listable, listed_batches
from sidecar.bundle.model import FileEntry, UnitState
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, UsageError
from sidecar.filters.literals import LiteralValue
from sidecar.filters.possible_types import possible_types, probe_as_any, readings_of
from sidecar.filters.probes import AnyEncoding, FieldQuestion
from sidecar.filters.values import Probe
from sidecar.questions.bounds import Unknown
from sidecar.results.base import FileProbe, ProbedRowGroup
from sidecar.storage.source import Source

NOT_INDEXED = "not indexed"
NOT_AUTHENTIC = "no key of the segment authenticates its list of files, see the warnings"
NO_ROW_GROUPS = "no row group of the file was indexed"
NO_LIST = "a part of the list of files cannot be read, see the warnings"
UNREADABLE = "the filter could not be read, see the warnings"
_CERTAIN = -1
"""The code of a unit for which filters answer. Other codes are places in a list of reasons why none does."""


def probe_sidecar(
    source: Source,
    column: str | int,
    value: LiteralValue,
    encryption_keys: EncryptionKeys | None = None,
) -> FileProbe:
    """Ask the filters of one column for one value.

    ``column`` is a field id, else a name that the sidecar has. Text is read as a value of the table's type, or, in a
    sidecar of plain files, of each type that the filters' encodings can hold.

    A file that several builds indexed has the answers of the first that is certain.

    Raises :class:`UsageError` for a file without segments, an unknown column and a value that fits no type,
    :class:`UnsupportedFeatureError` for a sidecar with too many units, and the errors of a damaged footer.
    """
    sidecar = SidecarFile.open(source, encryption_keys=encryption_keys)
    if not sidecar.segments:
        raise _nothing_in(sidecar)
    names = NamedColumns.of(sidecar.segments)
    fields = names.find(column, source.name)
    encodings = sorted({group.encoding for _, group in _groups(sidecar, fields)})
    types = _types(sidecar, fields, names, value)
    if encodings and not types and _has_rules(sidecar, fields):
        raise UsageError(
            f"the value does not fit the column '{column}'",
            file=source.name,
            expected=f"a value that is stored as {' or '.join(encodings)}",
            found=repr(value)[:80],
        )
    units = _answers(sidecar, fields, names, value)
    return FileProbe(units, fields, types, list(sidecar.warnings))


def _nothing_in(sidecar: SidecarFile) -> SidecarError:
    """Return the error for a file without segments: the damage that hides them, or that it is not a sidecar."""
    if sidecar.damage.causes:
        return sidecar.damage.causes[0]
    types = ", ".join(dict.fromkeys(blob.type for blob in sidecar.puffin.metadata.blobs))
    return UsageError(
        "the Puffin file has no filters: it is not a sidecar",
        file=sidecar.source.name,
        found=f"blobs of type {types}"[:200] if types else "no blobs",
    )


def _groups(sidecar: SidecarFile, fields: list[int]) -> Iterator[tuple[int, StoredGroup]]:
    for segment in sidecar.segments:
        for field_id in fields:
            yield from ((field_id, group) for group in segment.groups_of(field_id))


def _types(sidecar: SidecarFile, fields: list[int], names: NamedColumns, value: LiteralValue) -> list[str]:
    """Return the types as which the value is read, of all groups. Groups of unknown encodings have none."""
    types: dict[str, None] = {}
    for field_id, group in _groups(sidecar, fields):
        encoding = _encoding_of(group)
        if not isinstance(encoding, Unknown):
            types |= dict.fromkeys(name for name, _ in readings_of(value, encoding, names.table_type(field_id)))
    return list(types)


def _has_rules(sidecar: SidecarFile, fields: list[int]) -> bool:
    """Whether all filters are of encodings that hold values of some type with certain bytes."""
    found = (_encoding_of(group) for _, group in _groups(sidecar, fields))
    return all(not isinstance(encoding, Unknown) and possible_types(encoding) for encoding in found)


def _encoding_of(group: StoredGroup) -> AnyEncoding | Unknown:
    try:
        return group.rule.parse_encoding(group.encoding)
    except SidecarError as error:
        return Unknown(error.what)


def _known_as(entry: FileEntry) -> tuple[object, ...]:
    """Return what identifies a listed file. A file outside a table has the fingerprint of its data instead."""
    return *entry.identity, b"" if entry.identity.is_certain else entry.entry


def _answers(sidecar: SidecarFile, fields: list[int], names: NamedColumns, value: LiteralValue) -> list[ProbedRowGroup]:
    """Return the units of all segments; of a file in several segments, those of the first that is certain."""
    found: dict[tuple[object, ...], list[ProbedRowGroup]] = {}
    lost: list[ProbedRowGroup] = []
    vouched = {segment.id for segment in sidecar.vouched_segments(fields)}
    for segment in sidecar.segments:
        check_listable(segment)
        is_vouched = segment.id in vouched
        answer = _SegmentAnswer(sidecar, segment, names, value, NOT_INDEXED if is_vouched else NOT_AUTHENTIC)
        answer.ask(fields if is_vouched else [])
        for first_file, batch in listed_batches(segment, sidecar.damage):
            if batch is None:
                lost.append(_row_group_answer(None, None, None, NO_LIST))
            for ordinal, entry in enumerate(batch or (), first_file):
                # Segments of several builds may list a file; the first certain answer stays.
                units, known = answer.units(entry, ordinal), _known_as(entry)
                if known not in found or (not _is_certain(found[known]) and _is_certain(units)):
                    found[known] = units
    return [unit for units in found.values() for unit in units] + lost


def _is_certain(units: list[ProbedRowGroup]) -> bool:
    return any(unit.might_contain is not None for unit in units)


class _SegmentAnswer:
    """The answer of one segment about the value, by unit.

    ``_codes`` has :data:`_CERTAIN` or the reason of each unit, ``_may`` the answers of those that are certain.
    """

    def __init__(
        self, sidecar: SidecarFile, segment: Segment, names: NamedColumns, value: LiteralValue, start: str
    ) -> None:
        """``start`` is the reason for units that no filter answers for."""
        self._sidecar = sidecar
        self._segment = segment
        self._names = names
        self._value = value
        self._may = np.zeros(segment.num_units, np.bool_)
        self._reasons = [start]
        self._codes = np.zeros(segment.num_units, np.int32)

    def ask(self, fields: list[int]) -> None:
        """Ask the filters of all fields. A unit is excluded if every field with a filter of it excludes it."""
        for field_id in fields:
            self._note_coverage(field_id)
        for field_id in fields:
            self._ask_field(field_id, self._names.table_type(field_id))

    def _code_of_reason(self, reason: str) -> int:
        if reason not in self._reasons:
            self._reasons.append(reason)
        return self._reasons.index(reason)

    def _note_coverage(self, field_id: int) -> None:
        """Note why units have no filter. A unit that should have one counts as unreadable until it answers."""
        runs = (r for r in self._segment.coverage_runs if (r.field_id, r.kind) == (field_id, BLOOM))
        found = next(runs, None)
        if found is None:
            return
        coverage = found.expand()
        for number, state in enumerate(coverage.states):
            units = coverage.codes == number
            if state.state == UnitState.INDEXED:
                self._codes[units] = self._code_of_reason(UNREADABLE)
            else:
                self._codes[units & (self._codes == 0)] = self._code_of_reason(f"{NOT_INDEXED}: {state.state}")

    def _ask_field(self, field_id: int, iceberg_type: str | None) -> None:
        groups = [(group, _encoding_of(group)) for group in self._segment.groups_of(field_id)]
        known = {encoding for _, encoding in groups if not isinstance(encoding, Unknown)}
        probes = {encoding: [probe_as_any(self._value, encoding, iceberg_type)] for encoding in known}
        before = len(self._sidecar.warnings)
        may = self._segment.might_match(FieldQuestion(field_id, probes))
        # A locked bundle and damage both leave units in, so a unit that is left is not certain. An excluded one is.
        is_locked = any(bundle.usable_place() is None for bundle in self._segment.bundles_of(field_id))
        in_doubt = is_locked or len(self._sidecar.warnings) > before
        for group, encoding in groups:
            why = encoding.reason if isinstance(encoding, Unknown) else _why_unknown(*probes[encoding])
            reason = why or (UNREADABLE if in_doubt else None)
            code = _CERTAIN if reason is None else self._code_of_reason(reason)
            self._codes[group.units] = np.where(may[group.units], code, _CERTAIN)
            self._may[group.units] |= may[group.units]

    def units(self, entry: FileEntry, ordinal: int) -> list[ProbedRowGroup]:
        """Return one answer for each row group of a file; one without a row group if none was indexed."""
        first, stop = self._segment.unit_ranges[ordinal : ordinal + 2].tolist()
        if not entry.units or stop - first != len(entry.units):
            return [_row_group_answer(entry.path, None, None, NO_ROW_GROUPS)]
        return [self._unit(entry.path, unit.row_group, at) for at, unit in enumerate(entry.units, first)]

    def _unit(self, path: str, row_group: int, unit: int) -> ProbedRowGroup:
        code = int(self._codes[unit])
        if code != _CERTAIN:
            return _row_group_answer(path, row_group, None, self._reasons[code])
        contains = bool(self._may[unit])
        return _row_group_answer(path, row_group, contains, f"the filter {'admits' if contains else 'excludes'} it")


def _why_unknown(probe: Probe) -> str | None:
    """Return why filters cannot answer; ``None`` if they can."""
    return probe.reason or "nothing certain can be said of this value" if probe.verdict == "unknown" else None


def _row_group_answer(path: str | None, row_group: int | None, contains: bool | None, reason: str) -> ProbedRowGroup:
    return ProbedRowGroup(file=path, row_group=row_group, might_contain=contains, reason=reason)
