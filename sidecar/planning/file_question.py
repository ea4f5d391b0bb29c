"""What a predicate asks of the indexes of a table's data files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from sidecar.filters.leaf import Leaf
from sidecar.iceberg.conditions import asked_fields, condition_of
from sidecar.planning.file_bounds import FileBounds
from sidecar.questions.bounds import Bounds
from sidecar.questions.narrowing import asks_for_few, helpful


class FileQuestion:
    """What a filter, bound to a table's schema, asks of data files: what their bounds say, and what pages may."""

    def __init__(self, bound: BooleanExpression, schema: Schema) -> None:
        self.bound = rewrite_not(bound)
        self.types = {i: str(schema.find_field(i).field_type) for i in asked_fields(self.bound)}
        """Iceberg types of the columns that are asked, by field id."""
        self.bounds = FileBounds(self.types)
        self._condition = condition_of(self.bound, self.bounds.leaf)

    def helpful_fields(
        self, data: DataFile, has_pages: Callable[[int], bool] = lambda field_id: True
    ) -> set[int]:
        """The columns whose indexes may say more of a file than its bounds do."""
        if self._condition is None:
            return set()
        whole = partial(self._whole, data)
        return helpful(self._condition, whole, lambda leaf: has_pages(leaf.index)) or set()

    @property
    def asks_for_few(self) -> bool:
        """Whether rows must have one of some values."""
        return self._condition is not None and asks_for_few(self._condition)

    def _whole(self, data: DataFile, leaf: Leaf) -> Bounds:
        return self.bounds.of(data, leaf.index)
