"""Projects predicates onto partition values, for every value of a type and every writer.

pyiceberg's transforms of years, months, days and hours use Python's dates, which begin with the year 1 and end on
9999-12-31. Here they use integers, so ``day > '9999-12-31'`` can be projected.

Java computes some partition values in another way. A projection keeps these partitions too, and they decide nothing
of rows:

| transform | values | of Java |
| --- | --- | --- |
| truncate[W], int and long | the least, if the multiple of W below is not in the type | that multiple, wrapped around |
| truncate[W], int, W > 2^30 | any | anything: 32 bits overflow before the remainder is taken |
| hour | of years before -242,000 and after 246,000 | the hour, wrapped around in 32 bits |
| year, month, day, hour | times before 1970 | rounded up before Java 0.11, rounded down since |

(The last line is https://github.com/apache/iceberg/pull/1981.) A column that is long today may have been int, so both
widths may have wrapped. A wrapped number is never a multiple of W, because a W that divides 2^32 divides the least int.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.expressions.visitors import inclusive_projection
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, TimestampNanoType, TimestamptzNanoType

from sidecar.iceberg.predicates.unbound import is_in, not_above, not_below

_MICROS_PER_HOUR = 3_600_000_000
_WIDEST = 2**30
"""The widest truncation that Java computes without overflow in 32 bits."""


def project(
    expression: BooleanExpression, spec: PartitionSpec, schema: Schema, case_sensitive: bool
) -> BooleanExpression:
    """Project an expression on ``schema`` onto the fields of ``spec``: all partitions that can have a matching row."""
    projected = inclusive_projection(schema, exact_spec(spec, schema), case_sensitive)(expression)
    others = {other.name: other for _, other in _other_values(spec, schema)}
    return _widened(projected, others) if others else projected


def exact_spec(spec: PartitionSpec, schema: Schema) -> PartitionSpec:
    """Return the spec with transforms that are right for every value, or void if what writers computed is not known."""
    fields = [_exact_field(part, schema) for part in spec.fields]
    if all(ours is theirs for ours, theirs in zip(fields, spec.fields, strict=True)):
        return spec
    return PartitionSpec(*fields, spec_id=spec.spec_id)


def exact_transform(transform: Transform[Any, Any]) -> Transform[Any, Any]:
    """Return a transform that is right for every value, also where pyiceberg's raises an error."""
    return next((ours() for theirs, ours in _EXACT.items() if isinstance(transform, theirs)), transform)


def in_doubt(spec: PartitionSpec, schema: Schema) -> Callable[[Record], bool]:
    """Return the question if a partition of ``spec`` may have been computed in another way.

    Such a partition decides nothing about its rows: some may belong to another partition.
    """
    others = list(_other_values(spec, schema))
    return lambda partition: any(
        partition[place] is not None and other.is_doubtful(partition[place]) for place, other in others
    )


def _exact_field(part: PartitionField, schema: Schema) -> PartitionField:
    transform = exact_transform(part.transform)
    if _width_of_integers(part, schema) > _WIDEST:
        transform = VoidTransform()
    if transform is part.transform:
        return part
    return PartitionField(part.source_id, part.field_id, transform, part.name)


def _widened(projected: BooleanExpression, others: dict[str, _OtherValues]) -> BooleanExpression:
    """Add partitions that other writers made for the same rows. ``projected`` is not bound and has no NOT."""
    if isinstance(projected, And | Or):
        return type(projected)(_widened(projected.left, others), _widened(projected.right, others))
    leaf: Any = projected
    if not isinstance(projected, EqualTo | In | LessThanOrEqual | GreaterThanOrEqual) or leaf.term.name not in others:
        return projected
    other = others[leaf.term.name]
    if isinstance(projected, EqualTo | In):
        literals = leaf.literals if isinstance(projected, In) else [leaf.literal]
        return is_in(leaf.term, {alike for literal in literals for alike in other.alike(literal.value)})
    for beside in other.beside(leaf.term, leaf.literal.value, isinstance(projected, LessThanOrEqual)):
        projected = Or(projected, beside)
    return projected


def _other_values(spec: PartitionSpec, schema: Schema) -> Iterator[tuple[int, _OtherValues]]:
    """Yield the fields of a spec whose values some writers computed in another way, with their places."""
    for place, part in enumerate(spec.fields):
        if part.source_id not in schema.field_ids:
            continue
        kind, transform = schema.find_type(part.source_id), part.transform
        if isinstance(transform, TimeTransform) and not _is_the_value(transform, kind):
            yield place, _RoundedTimes(part.name, isinstance(transform, HourTransform))
        elif 1 < (width := _width_of_integers(part, schema)) <= _WIDEST:  # wider ones are void
            yield place, _WrappedNumbers(part.name, width, isinstance(kind, LongType))


def _width_of_integers(part: PartitionField, schema: Schema) -> int:
    """Return the width to which a field truncates ints or longs; 0 if it does something else."""
    transform = part.transform
    if not isinstance(transform, TruncateTransform) or part.source_id not in schema.field_ids:
        return 0
    return transform.width if isinstance(schema.find_type(part.source_id), IntegerType | LongType) else 0


def _is_the_value(transform: TimeTransform[Any], kind: IcebergType) -> bool:
    """Return whether a transform changes nothing: the day of a date."""
    return isinstance(transform, DayTransform) and isinstance(kind, DateType)


@dataclass(frozen=True)
class _RoundedTimes:
    """Years, months, days or hours: rounded up before 1970 by old writers; hours wrap around beyond 32 bits."""

    name: str
    are_hours: bool

    def alike(self, value: int) -> set[int]:
        """Return the partition values that rows of one partition may have."""
        found = {value, value + 1} if value < 0 else {value}
        return {_wrapped(one, 32) for one in found} if self.are_hours else found

    def beside(self, term: Reference, end: int, is_below: bool) -> Iterator[BooleanExpression]:
        """Yield predicates on partitions with rows of a range that ends or begins with a partition."""
        if is_below and end < 0:
            yield not_above(term, end + 1)
        if self.are_hours:
            yield not_below(term, _FAR_HOUR) if is_below else not_above(term, -_FAR_HOUR - 1)

    def is_doubtful(self, value: int) -> bool:
        """Return whether rows of a partition may belong to another one."""
        return value <= 0 or (self.are_hours and value >= _FAR_HOUR)


@dataclass(frozen=True)
class _WrappedNumbers:
    """Truncated ints or longs: below the least value of the type they wrap around."""

    name: str
    width: int
    is_long: bool

    @property
    def wrapped(self) -> dict[int, int]:
        """The multiples of the width that are below a type, with what Java makes of them."""
        bits = (32, 64) if self.is_long else (32,)
        lowest = ((one, -(1 << (one - 1)) // self.width * self.width) for one in bits)
        return {multiple: _wrapped(multiple, one) for one, multiple in lowest if multiple < -(1 << (one - 1))}

    def alike(self, value: int) -> set[int]:
        """Return the partition values that rows of one partition may have."""
        return {value, self.wrapped.get(value, value)}

    def beside(self, term: Reference, end: int, is_below: bool) -> Iterator[BooleanExpression]:
        """Yield predicates on partitions with rows of a range that ends or begins with a partition."""
        found = {other for multiple, other in self.wrapped.items() if is_below and multiple <= end}
        if found:  # a wrapped value is within each range without an upper end
            yield is_in(term, found)

    def is_doubtful(self, value: int) -> bool:
        """Return whether rows of a partition may belong to another one."""
        return value % self.width != 0


_OtherValues = _RoundedTimes | _WrappedNumbers


def _wrapped(value: int, bits: int) -> int:
    """Return a number as Java stores it in ``bits`` bits."""
    least = -(1 << (bits - 1))
    return (value - least) % (1 << bits) + least


_FAR_HOUR = _wrapped(-(2**63) // _MICROS_PER_HOUR, 32)
"""The wrapped hour of the least timestamp. Hours of other times beyond 32 bits wrap to numbers farther from 0."""


def _year_and_month(days: int) -> tuple[int, int]:
    """Return year and month of a day after 1970-01-01 in the Gregorian calendar, for any number of days.

    Years begin in March here, so that the leap day is the last one.
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    month = (5 * (day_of_era - (365 * year + year // 4 - year // 100)) + 2) // 153
    return era * 400 + year + (month >= 10), month + 3 if month < 10 else month - 9


def _hours(kind: IcebergType, value: int) -> int:
    if isinstance(kind, DateType):
        return value * 24
    is_nano = isinstance(kind, TimestampNanoType | TimestamptzNanoType)
    return value // (_MICROS_PER_HOUR * 1_000 if is_nano else _MICROS_PER_HOUR)


def _days(kind: IcebergType, value: int) -> int:
    return _hours(kind, value) // 24


def _months(kind: IcebergType, value: int) -> int:
    year, month = _year_and_month(_days(kind, value))
    return (year - 1970) * 12 + month - 1


def _years(kind: IcebergType, value: int) -> int:
    return _year_and_month(_days(kind, value))[0] - 1970


def _of_integers(compute: Callable[[IcebergType, int], int], kind: IcebergType) -> Callable[[Any], Any]:
    return lambda value: None if value is None else compute(kind, value)


def _exact(kind: type[Transform[Any, Any]], compute: Callable[[IcebergType, int], int]) -> Callable[[], Any]:
    """Return what makes a transform of a kind that computes with exact integers."""
    of_values = {"transform": lambda _, source: _of_integers(compute, source)}
    return cache(type(f"Exact{kind.__name__}", (kind,), of_values))


_EXACT: dict[type[Transform[Any, Any]], Callable[[], Transform[Any, Any]]] = {
    kind: _exact(kind, compute)
    for kind, compute in (
        (YearTransform, _years),
        (MonthTransform, _months),
        (DayTransform, _days),
        (HourTransform, _hours),
    )
}
