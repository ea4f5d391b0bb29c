"""The statistics of a file and of its stripes, held against rows and against each other.

They are in the tail of the file. Nothing is believed of a column in a stripe if its counts cannot be true. What can be
true depends on the columns above it: the values of a struct are the entries of each of its fields. So the message of
the root is looked at first; in files that ORC Java writes without a row index it says that there are no rows.

Statistics of the file have to agree with those of its stripes together. If they do not, one of them is false, and
nothing says which: the column's statistics are not believed in the file, nor in any stripe that is concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

from sidecar.errors import DamagedFileError, Problem, SidecarError, located, problem_in, reason_at
from sidecar.orc.protobuf import decode
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics.column_statistics import ColumnStatistics, Extent, decode_statistics, unknown_statistics
from sidecar.orc.statistics.contradictions import Contradictions, PartStatistics
from sidecar.orc.tail import OrcTail, Stripe, read_stripe_statistics
from sidecar.storage.source import Source

_MOST_DECODED = 10_000
"""Decoded statistics that are kept: about 1 KiB each."""


class _Finding(NamedTuple):
    """Something false in the statistics of a stripe, or of the file if ``stripe`` is ``None``."""

    stripe: int | None
    column: OrcColumn
    what: str


class _Comparison(NamedTuple):
    column: OrcColumn
    together: PartStatistics
    of_stripe: dict[int, str]


class FileStatistics:
    """The statistics of one open file; those of stripes are read when they are first asked for: at most one read."""

    def __init__(self, source: Source, tail: OrcTail) -> None:
        self._source = source
        self._tail = tail
        self._contradictions: dict[int, Contradictions] = {}
        self._latest: tuple[int, Sequence[bytes]] = (-1, ())
        """The stripe that was asked for last, and its messages."""
        self._decoded: dict[tuple[int, int, str | None], ColumnStatistics] = {}
        """Decoded statistics, by stripe (-1 for the file), column and zone. Each column below asks for them again, and
        so do comparisons of files and stripes."""

    @cached_property
    def _stripes(self) -> list[bytes] | DamagedFileError:
        try:
            return read_stripe_statistics(self._source, self._tail)
        except DamagedFileError as error:
            return error

    @cached_property
    def _of_file(self) -> Sequence[bytes]:
        return self._tail.footer.all_bytes(7)

    @cached_property
    def _rows(self) -> int:
        return sum(stripe.num_rows for stripe in self._tail.stripes)

    @property
    def problem(self) -> DamagedFileError | None:
        """Why the statistics of stripes cannot be read."""
        return self._stripes if isinstance(self._stripes, DamagedFileError) else None

    @property
    def num_stripes(self) -> int:
        """The number of stripes with statistics; those of another number of stripes than the file has say nothing."""
        return 0 if isinstance(self._stripes, DamagedFileError) else len(self._stripes)

    def num_columns(self, stripe: Stripe) -> int:
        """The number of columns with statistics in a stripe; 0 if there are none, or if they are damaged."""
        try:
            return len(self._messages(stripe))
        except DamagedFileError:
            return 0

    def of_file(self, column: OrcColumn) -> ColumnStatistics | None:
        """Return what is believed of a column in the whole file; ``None`` if there are no statistics.

        Raises :class:`DamagedFileError`.
        """
        self.compare([column])
        between = self._contradictions[column.id]
        why = between.of_all or next(iter(between.of_part.values()), "")
        return self._believed(self._said_of_file(column), column, why)

    def of_stripe(self, stripe: Stripe, column: OrcColumn, zone: str | None = None) -> ColumnStatistics | None:
        """Return what is believed of a column in a stripe; ``None`` if there are no statistics.

        Without ``zone``, the writer's, bounds of a TIMESTAMP are a day wider. Raises :class:`DamagedFileError`.
        """
        self.compare([column])
        return self._believed(
            self._said_of_stripe(stripe, column, zone), column, self._contradictions[column.id].of(stripe.ordinal)
        )

    def compare(self, columns: Iterable[OrcColumn]) -> None:
        """Compare what file and stripes say of these columns, all in one pass, where that was not done yet."""
        new = [column for column in columns if column.id not in self._contradictions]
        compared: list[_Comparison] = []
        for column in new:
            whole = self._unless_damaged(self._said_of_file, column)
            if whole is None or whole.contradiction or column.encrypted:
                self._contradictions[column.id] = Contradictions()
            else:
                compared.append(_Comparison(column, PartStatistics(whole, "file", "stripes"), {}))
        for stripe in self._tail.stripes if compared else ():
            for one in compared if stripe.num_rows else ():
                part = self._unless_damaged(partial(self._said_of_stripe, stripe), one.column)
                if what := one.together.add(part):
                    one.of_stripe[stripe.ordinal] = what
        for one in compared:
            self._contradictions[one.column.id] = Contradictions(one.together.problem(), one.of_stripe)

    def problems(self) -> list[Problem]:
        """Return all contradictions; one that several stripes share comes once.

        Columns below a column with false statistics are not named again.
        """
        stripes: dict[tuple[str, str], list[int]] = {}
        found: list[Problem] = []
        for stripe, column, what in self._findings():
            if stripe is None:
                found.append(problem_in(self._tail.name, f"footer: statistics: {what}", column.path or None))
            else:
                stripes.setdefault((column.path, what), []).append(stripe)
        for (path, what), numbers in stripes.items():
            more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
            found.append(problem_in(self._tail.name, f"stripe {numbers[0]}{more}: statistics: {what}", path or None))
        return found

    def _findings(self) -> Iterator[_Finding]:
        yield from self._own_findings(None, self._said_of_file)
        for stripe in self._tail.stripes:
            yield from self._own_findings(stripe.ordinal, partial(self._said_of_stripe, stripe))
        self.compare(self._tail.columns)
        for column in self._tail.columns:
            between = self._contradictions[column.id]
            if between.of_all:
                yield _Finding(None, column, between.of_all)
            for ordinal, what in between.of_part.items():
                yield _Finding(ordinal, column, what)

    def _own_findings(
        self, stripe: int | None, statistics: Callable[[OrcColumn], ColumnStatistics | None]
    ) -> Iterator[_Finding]:
        named: set[int] = set()
        for column in self._tail.columns:
            if column.parent in named:
                named.add(column.id)
                continue
            try:
                found = statistics(column)
                what = "" if found is None else found.contradiction
            except SidecarError as error:
                what = reason_at(error)
            if what:
                named.add(column.id)
                yield _Finding(stripe, column, what)

    def _said_of_file(self, column: OrcColumn) -> ColumnStatistics | None:
        return self._column_in_part(-1, self._of_file, self._rows, column, None)

    def _said_of_stripe(self, stripe: Stripe, column: OrcColumn, zone: str | None = None) -> ColumnStatistics | None:
        return self._column_in_part(stripe.ordinal, self._messages(stripe), stripe.num_rows, column, zone)

    def _messages(self, stripe: Stripe) -> Sequence[bytes]:
        """Return the encoded statistics of a stripe, one message for each column; nothing if there are none."""
        if isinstance(self._stripes, DamagedFileError) or len(self._stripes) != len(self._tail.stripes):
            return ()
        ordinal, messages = self._latest
        if ordinal != stripe.ordinal:
            with located(self._tail.name, offset=self._tail.metadata_offset):
                messages = decode(self._stripes[stripe.ordinal]).all_bytes(1)
            self._latest = stripe.ordinal, messages
        return messages

    def _believed(
        self, found: ColumnStatistics | None, column: OrcColumn, contradiction: str
    ) -> ColumnStatistics | None:
        if found is None or found.contradiction or not contradiction:
            return found
        return unknown_statistics(found.raw, column, contradiction)

    def _unless_damaged(
        self, statistics: Callable[[OrcColumn], ColumnStatistics | None], column: OrcColumn
    ) -> ColumnStatistics | None:
        try:
            return statistics(column)
        except DamagedFileError:
            return None  # it is raised when the statistics are asked for

    def _column_in_part(
        self, part: int, messages: Sequence[bytes], rows: int, column: OrcColumn, zone: str | None
    ) -> ColumnStatistics | None:
        """Return the statistics of a column in the ``rows`` rows of a part, held against those of the columns above."""
        columns = self._tail.columns
        if len(messages) != len(columns):
            return None
        chain = [column]
        while chain[0].parent is not None:
            chain.insert(0, columns[chain[0].parent])
        extent = Extent(rows, rows)
        for member in chain:
            place = part, member.id, zone if member.kind == "TIMESTAMP" else None  # only its bounds depend on a zone
            known = self._decoded.get(place)
            found = known or decode_statistics(decode(messages[member.id]), member, self._tail, zone, extent)
            if known is None:
                if len(self._decoded) == _MOST_DECODED:
                    self._decoded.clear()
                self._decoded[place] = found
            if found.contradiction and member is not column:
                what = f"those of {member.path or 'the rows'} are false: {found.contradiction}"
                return unknown_statistics(decode(messages[column.id]), column, what)
            extent = _below(member, found, extent)
        return found


def _below(column: OrcColumn, found: ColumnStatistics, extent: Extent) -> Extent:
    """Return the entries of the fields of a column with ``extent``; old writers count structs in lists otherwise."""
    if column.kind != "STRUCT" or column.nested_in_repeated:
        return Extent(0, None)
    if found.num_values is None:
        return extent if column.parent is None else Extent(0, extent.most)
    is_sure = found.num_values or found.all_null
    return Extent(found.num_values, found.num_values) if is_sure else Extent(0, extent.most)
