"""Compares a table's sidecar with the values of data files, in this process or on Spark.

On Spark, a task has the files of about one gibibyte. It opens the sidecar itself and reads the groups of filters that
its files are in, so fewer files a task would read the same groups more often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.verify_values import DataPlace, place_problems, places_to_check
from sidecar.engines.work import WorkEngine
from sidecar.errors import Problem, SidecarError
from sidecar.iceberg.resolve import fields_of_keys
from sidecar.iceberg.statistics_files.find_sidecar import FoundSidecar
from sidecar.questions.value_check import ValueCheck

TASK_BYTES = 1 << 30
"""Bytes of the data files of a task, about."""


def table_value_problems(
    table: Table,
    found: FoundSidecar,
    places: Sequence[DataPlace],
    check: ValueCheck,
    access: Access,
    engine: WorkEngine,
) -> list[Problem]:
    """Return a problem for each index that denies values, in the files that ``check`` chooses; ``check`` counts them.

    Damage is a problem. Raises :class:`sidecar.errors.StorageError` if Spark fails.
    """
    chosen = places_to_check(found.sidecar, places, check)
    if engine.name == "local":
        return list(place_problems(found.sidecar, chosen, access, check))
    named = fields_of_keys(table, access.keys)
    columns = {i: name for i in table.schema().field_ids if (name := table.schema().find_column_name(i))}
    entry, uuid = found.statistics, str(table.metadata.table_uuid)
    work = _CheckPlaces(access, entry.statistics_path, uuid, columns, named)
    problems: list[Problem] = []
    with closing(engine.run(work, _tasks(chosen))) as answers:
        for answer in answers:
            if isinstance(answer, SidecarError):
                raise answer
            found_there, values, indexes = answer
            problems += found_there
            check.values += values
            check.indexes += indexes
    return list(dict.fromkeys(problems))  # a damaged group of filters is a problem of each task that reads it


def _tasks(places: Sequence[DataPlace]) -> list[tuple[DataPlace, ...]]:
    tasks: list[list[DataPlace]] = []
    held = TASK_BYTES
    for place in places:
        if held >= TASK_BYTES:
            tasks.append([])
            held = 0
        tasks[-1].append(place)
        held += place.listed.file_size
    return [tuple(task) for task in tasks]


@dataclass(frozen=True)
class _CheckPlaces:
    """The work of a task: compare some data files with the sidecar at ``path``.

    It returns the problems, and how many values and indexes were compared.
    """

    access: Access
    path: str
    table_uuid: str
    columns: Mapping[int, str]
    """Names of columns by field id."""
    named: Mapping[int, bytes] = field(repr=False)
    """Key metadata of the columns that the keys name, by field id."""

    def __call__(self, places: tuple[DataPlace, ...]) -> tuple[list[Problem], int, int]:
        source = self.access.open(self.path)
        with closing(SidecarFile.open(source, table_uuid=self.table_uuid, columns=self.columns.get)) as sidecar:
            sidecar.use_keys(self.access.keys, self.named)
            check = ValueCheck()
            problems = list(place_problems(sidecar, places, self.access, check))
        return problems, check.values, check.indexes
