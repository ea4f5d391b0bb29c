"""Bugs to plant in sidecar, so that it is seen that lives find them. Each takes away one check that loses rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.bundle import filter_answers
from sidecar.bundle.segment import Segment
from sidecar.bundle.sketches.count_marks import CountMarks
from sidecar.bundle.units import fingerprints
from sidecar.filters import probes
from sidecar.filters.encoding import Encoding
from sidecar.iceberg.deletes.delete_files import EqualityDeletes
from sidecar.indexing.previous import carrying
from sidecar.planning.tasks import TaskMaker
from sidecar.questions.narrowing import matching_units
from sidecar.questions.row_ranges import RowRanges

Plant = Callable[[pytest.MonkeyPatch], None]


def stale_file(patch: pytest.MonkeyPatch) -> None:
    """Path, size and number of rows are enough to be the same file."""
    patch.setattr(fingerprints, "_ADDED", SimpleNamespace(pack=lambda snapshot_id: b""))
    patch.setattr(fingerprints, "sequences_agree", lambda first, second: (first == second) | True)
    patch.setattr(Segment, "file_ordinal", lambda self, file: self._index.find(file))


def promoted_column(patch: pytest.MonkeyPatch) -> None:
    """A value is hashed in the width that the column has today, not in that of the file."""
    known = probes.probe_for

    def probe_for(value: object, iceberg_type: str, encoding: Any) -> Any:
        wider = {("long", "int32"): "int64", ("double", "float"): "double"}
        name = wider.get((iceberg_type, getattr(encoding, "name", "")))
        return known(value, iceberg_type, Encoding.parse(name) if name else encoding)

    patch.setattr(probes, "probe_for", probe_for)


def equality_deletes(patch: pytest.MonkeyPatch) -> None:
    """No equality delete applies to any file."""
    patch.setattr(EqualityDeletes, "_deletes_of", lambda self, path: iter(()))


def position_deletes(patch: pytest.MonkeyPatch) -> None:
    """Tasks lose their delete files."""
    known = TaskMaker.tasks

    def tasks(*given: Any) -> Any:
        made = known(*given)
        for task in made:
            task.delete_files = set()
        return made

    patch.setattr(TaskMaker, "tasks", tasks)


def partly_indexed_file(patch: pytest.MonkeyPatch) -> None:
    """A unit without a filter counts as one whose filter says no."""

    def answer_of(segment: Any, question: Any, holds: Any, warnings: Any) -> Any:
        answer = known(segment, question, holds, warnings)
        if question is None:
            return answer

        def ask(leaf: Any) -> Any:
            return filter_answers.may_hold(segment, holds, leaf) & filter_answers.indexed_units(segment, leaf)

        units = RowRanges.of_rows(matching_units(question, ask, segment.num_units).nonzero()[0])
        return answer._replace(units=units, left=segment.files_with(units))

    known = filter_answers.answer_of
    patch.setattr(filter_answers, "answer_of", answer_of)


def carried_files(patch: pytest.MonkeyPatch) -> None:
    """Merged segments take the indexes of one file for those of the next."""
    known = carrying.live_files

    def live_files(segment: Any, files: Any) -> dict[int, int]:
        found = known(segment, files)
        numbers = [*found.values()]
        return dict(zip(found, [*numbers[1:], *numbers[:1]], strict=True))

    patch.setattr(carrying, "live_files", live_files)


def counts_without_marks(patch: pytest.MonkeyPatch) -> None:
    """A distinct count never says that it is only a bound."""
    patch.setattr(CountMarks, "of", classmethod(lambda cls, properties: cls()))


BUGS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        stale_file, promoted_column, equality_deletes, position_deletes, partly_indexed_file,
        carried_files, counts_without_marks,
    )
}  # fmt: skip


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Sidecar with one of the bugs, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        yield
