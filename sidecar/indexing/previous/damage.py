"""Finds what is damaged in a sidecar, so that it is made anew and does not count as covered.

Each piece of a filter, of an index and of a units table has a checksum, so all of them are read. A build does that
before it indexes, and ``care`` each night. A refresh looks at what it merges, and at what passes through this process
when it is copied; what is damaged is left out, and the next refresh makes it anew. A store that copies by itself (S3)
shows no bytes: there the refresh sees the file's tail and what it merges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pyiceberg.table.statistics import StatisticsFile

from sidecar.bundle.kinds.declared import KIND_OF_BLOB
from sidecar.bundle.merging.checking import damaged_units
from sidecar.bundle.merging.source_segment import SourceSegment
from sidecar.bundle.runs import IndexOfField
from sidecar.bundle.segment import Segment
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.verify import footer_problems
from sidecar.errors import DamagedFileError, StorageError, UnsupportedFeatureError
from sidecar.iceberg.statistics_files.merge import damage_of_sketch, is_our_theta
from sidecar.puffin.reader import PuffinReader
from sidecar.questions.narrowing import Units


@dataclass(frozen=True)
class SidecarDamage:
    """The damage in a sidecar."""

    units: Mapping[IndexOfField, Units]
    """The units whose filter or index is damaged, by field id and kind: bool[units of the sidecar]."""
    counts: frozenset[int]
    """The fields whose sketch of the whole table is damaged."""
    tables: frozenset[str] = frozenset()
    """The segments whose units table is damaged, by id. All of their units are in :attr:`units`."""
    footer: tuple[str, ...] = ()
    """Statements of the footer that differ from the directory and the segments. A new file has all of them right."""

    def __bool__(self) -> bool:
        return bool(self.units or self.counts or self.tables or self.footer)


NO_DAMAGE: SidecarDamage = SidecarDamage({}, frozenset())


def find_damage(sidecar: SidecarFile, entry: StatisticsFile) -> SidecarDamage:
    """Read all filters, indexes, sketches and units tables of ours, and return what is damaged.

    A damaged units table damages all indexes of its segment. Blobs without their key are left out, and what the storage
    refuses. A distinct count that ``entry``, the sidecar's, registers and that the footer does not name is damaged too.
    Copies of tables of contents are not read. The warnings of the sidecar stay as they are: they decide whether
    anything of it is used.
    """
    causes, warnings = list(sidecar.damage.causes), list(sidecar.damage.warnings)
    units: dict[IndexOfField, Units] = {}
    tables: set[str] = set()

    def note(key: IndexOfField, segment: Segment, flags: Units) -> None:
        own = segment.own_units(units.setdefault(key, np.zeros(sidecar.num_units, np.bool_)))
        own |= flags

    for segment in sidecar.segments:
        try:
            if _is_table_damaged(segment):
                tables.add(segment.id)
                for one in segment.coverages:
                    note((one.field_id, one.kind), segment, np.ones(segment.num_units, np.bool_))
                continue
            damaged = damaged_units(SourceSegment(sidecar, segment))
        except StorageError:
            continue
        for (blob_type, field_id), flags in damaged.items():
            note((field_id, KIND_OF_BLOB[blob_type].name), segment, flags)
    sidecar.damage.causes[:], sidecar.damage.warnings[:] = causes, warnings
    counts = _broken_sketches(sidecar.puffin, entry)
    return SidecarDamage(units, frozenset(counts), frozenset(tables), tuple(footer_problems(sidecar)))


def _is_table_damaged(segment: Segment) -> bool:
    """Return whether the units table of a segment is damaged: all of its indexes are made anew, none can be merged."""
    try:
        segment.units.verify()
    except DamagedFileError:
        return True
    except UnsupportedFeatureError:
        pass
    return False


def _broken_sketches(puffin: PuffinReader, entry: StatisticsFile) -> set[int]:
    sketches = list(filter(is_our_theta, puffin.metadata.blobs))
    registered = {blob.fields[0] for blob in entry.blob_metadata if is_our_theta(blob)}
    missing = registered.difference(blob.fields[0] for blob in sketches)
    return missing | {blob.fields[0] for blob in sketches if damage_of_sketch(puffin, blob) is not None}
