"""An open ORC file. Its units are the row groups (strides) of its stripes, its parts are the stripes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

from sidecar.bundle.filters.filter_toc import StoredGroup
from sidecar.bundle.filters.rules import IndexRule, OrcRule
from sidecar.bundle.indexes.row_indexes import EntryKind
from sidecar.bundle.model import UnitEntry
from sidecar.data_files.open_file import PartValues
from sidecar.data_files.orc_column import OrcColumnPart
from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.orc.decode import read_row_groups
from sidecar.orc.embed import check_embeddable
from sidecar.orc.iceberg_values import OrcValues, orc_values, zone_doubt
from sidecar.orc.identity import data_digest, data_fingerprint, is_distinctive
from sidecar.orc.index_streams import BLOOM_FILTER, BLOOM_FILTER_UTF8, read_indexes
from sidecar.orc.inspect import find_column
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.streams import DATA_STREAMS
from sidecar.orc.stripe import INDEX_STREAMS, StripeFooter, read_stripe_footer
from sidecar.orc.tail import OrcTail
from sidecar.puffin.types import ROW_INDEX
from sidecar.questions.bounds import Bounds
from sidecar.storage.source import Source


@dataclass(frozen=True)
class OrcLeaf:
    """A leaf column of the file, with its path in Parquet's style: ``a.list.element``, ``m.key_value.key``.

    With these paths a column has the same name in files of both formats, and its filters share groups.
    """

    column: OrcColumn
    path: str

    @property
    def index(self) -> int:
        """See :class:`sidecar.data_files.open_file.DataLeaf`."""
        return self.column.id

    @property
    def own_path(self) -> str:
        """See :class:`sidecar.data_files.open_file.DataLeaf`."""
        return self.column.path

    @property
    def field_id(self) -> int | None:
        """Field id in the file, if it has one."""
        return self.column.field_id


def first_units(tail: OrcTail) -> list[int]:
    """Return the number of row groups before each stripe; the last entry counts all of them."""
    return list(accumulate((stripe.num_row_groups for stripe in tail.stripes), initial=0))


def leaves_of(tail: OrcTail) -> Sequence[OrcLeaf]:
    """Return the leaf columns of a file in the order of their ids."""
    paths: dict[int, str] = {}
    for column in tail.columns[1:]:
        above = tail.columns[column.parent or 0]
        name = column.path[len(above.path) + 1 :] if above.id else column.path
        between = {"LIST": "list.", "MAP": "key_value."}.get(above.kind, "")
        paths[column.id] = f"{paths[above.id]}.{between}{name}" if above.id else name
    return [OrcLeaf(column, paths[column.id]) for column in tail.columns[1:] if not column.is_compound]


class OpenOrc:
    """See :class:`sidecar.data_files.open_file.OpenFile`. No key opens a column of an ORC file."""

    format: Final = "orc"
    index_blobs: Final = ROW_INDEX

    def __init__(self, source: Source, tail: OrcTail) -> None:
        self.source, self.tail = source, tail
        self.name, self.size, self.num_rows = tail.name, tail.size, tail.num_rows
        self.leaves: Sequence[Any] = leaves_of(tail)
        self.page_sizes: list[int] = []
        self._footers: dict[int, StripeFooter] = {}
        self.first_units = first_units(tail)
        """The number of row groups before each stripe; the last entry counts all of them."""

    @cached_property
    def statistics(self) -> FileStatistics:
        """The statistics of the file and of its stripes."""
        return FileStatistics(self.source, self.tail)

    @cached_property
    def units(self) -> Sequence[UnitEntry]:
        """See :class:`.OpenFile`."""
        return [
            UnitEntry(self.first_units[stripe.ordinal] + group.ordinal, group.first_row, group.rows)
            for stripe in self.tail.stripes
            for group in stripe.row_groups
        ]

    @property
    def parts(self) -> int:
        """See :class:`.OpenFile`."""
        return len(self.tail.stripes)

    def part_units(self, part: int) -> range:
        """See :class:`.OpenFile`."""
        return range(self.first_units[part], self.first_units[part + 1])

    def is_encrypted(self, leaf: Any) -> bool:
        """See :class:`.OpenFile`."""
        return bool(leaf.column.encrypted)

    is_locked = is_encrypted

    def filter_bytes(self, part: int, leaf: Any) -> int | None:
        """See :class:`.OpenFile`."""
        streams = self.footer(part).streams_of(leaf.column.id)
        lengths = [stream.length for stream in streams if stream.kind.startswith("BLOOM_FILTER")]
        return sum(lengths) if lengths else None

    def part_size(self, part: int) -> int:
        """See :class:`.OpenFile`."""
        stripe = self.tail.stripes[part]
        return stripe.end - stripe.offset

    def cost(self, part: int, leaf: Any) -> int:
        """See :class:`.OpenFile`."""
        streams = self.footer(part).streams_of(leaf.column.id)
        return sum(stream.length for stream in streams if stream.kind in DATA_STREAMS)

    def values(self, part: int, leaf: Any, iceberg_type: str) -> Iterator[PartValues]:
        """See :class:`.OpenFile`."""
        stripe, footer = self.tail.stripes[part], self.footer(part)
        values = orc_values(leaf.column, iceberg_type, self.tail.writer)
        doubt = values if isinstance(values, str) else zone_doubt(leaf.column, footer.writer_timezone)
        if doubt or not isinstance(values, OrcValues):
            raise UnsupportedFeatureError(doubt, file=self.tail.name, column=leaf.path)
        for unit, array in enumerate(read_row_groups(self.source, self.tail, stripe, footer, leaf.column)):
            yield PartValues(unit, values.from_file(array), False)

    def number_of(self, path: str) -> int:
        """See :class:`.OpenFile`."""
        return find_column(self.tail, path).id

    def check_embeddable(self) -> None:
        """See :class:`.OpenFile`."""
        check_embeddable(self.tail)

    def can_hold(self, rule: IndexRule) -> bool:
        """See :class:`.OpenFile`."""
        return isinstance(rule, OrcRule)

    def may_have_new_filters(self, leaf: Any) -> bool:
        """See :class:`.OpenFile`. Which columns may have some depends on the stripe, too."""
        return True

    def values_size(self, part: int, leaf: Any) -> int:
        """See :class:`.OpenFile`."""
        streams = self.footer(part).streams_of(leaf.column.id)
        return sum(stream.length for stream in streams if stream.kind not in INDEX_STREAMS)

    def fits(self, leaf: Any, made: StoredGroup | EntryKind) -> bool:
        """See :class:`.OpenFile`. Filters of both kinds are made of ORC's values, in any encoding."""
        return True

    def column_part(self, part: int, leaf: Any) -> OrcColumnPart:
        """See :class:`.OpenFile`."""
        return OrcColumnPart(self, part, leaf.column)

    def page_bounds(self, part: int, leaf: Any) -> Bounds | None:
        """See :class:`.OpenFile`. Row indexes of ORC are not looked at."""
        return None

    def close(self) -> None:
        """See :class:`.OpenFile`."""

    def trusted_filters(self) -> Iterator[tuple[str, OrcBloomFilter]]:
        """See :class:`.OpenFile`."""
        for stripe in self.tail.stripes:
            if not stripe.num_rows:
                continue
            footer = self.footer(stripe.ordinal)
            kinds = (BLOOM_FILTER, BLOOM_FILTER_UTF8)
            ids = sorted({stream.column for stream in footer.streams if stream.kind in kinds})
            for index in read_indexes(self.source, self.tail, footer, ids, self.statistics).values():
                for found in index.filters or ():
                    if found.trusted and found.filter is not None:
                        yield index.column.path, found.filter

    is_unique = False

    def fingerprint(self) -> bytes:
        """See :class:`.OpenFile`."""
        return data_fingerprint(self.source, self.tail)

    def is_distinctive(self) -> bool:
        """See :class:`.OpenFile`."""
        return is_distinctive(self.source, self.tail)

    @cached_property
    def _digest(self) -> bytes:
        return data_digest(self.source, self.tail)

    def digest(self, *, check: bool) -> bytes:
        """See :class:`.OpenFile`. Data of ORC has no checksums."""
        return self._digest

    def footer(self, part: int) -> StripeFooter:
        """Return the footer of a stripe."""
        if part not in self._footers:
            self._footers[part] = read_stripe_footer(self.source, self.tail, self.tail.stripes[part])
        return self._footers[part]
