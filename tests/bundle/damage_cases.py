"""A small sidecar of known values, for tests of damage."""

from __future__ import annotations

from functools import cache

from tests.bundle.cases import (
    field_bundle,
    filter_of,
    units_table,
    write_file,
)

VALUES = range(0, 40)
ABSENT = range(1000, 1020)


@cache
def sound(members: int, blocks: int = 2) -> tuple[bytes, int]:
    """Unit u holds the values v with v % members == u in field 1, and 7 v + u in field 4."""
    first = [filter_of(held(unit, members), blocks) for unit in range(members)]
    other = [filter_of([value * 7 + unit for value in range(5)], 1) for unit in range(members)]
    return write_file([field_bundle(1, first), field_bundle(4, other)], units_table(members))


def held(unit: int, members: int) -> list[int]:
    return [value for value in VALUES if value % members == unit]
