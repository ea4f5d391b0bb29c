"""Says what the stages of a plan found about one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import FileScanTask

from sidecar.errors import UsageError
from sidecar.planning.files.file_set import DroppedBy, FileSet, FileSource
from sidecar.planning.funnel import KeptReason
from sidecar.planning.tasks import data_of, live_entries

KEPT, OUT = "may match", "ruled out"


@dataclass(frozen=True)
class PlanHistory:
    """The sets of a plan with their steps, and what became of files after these."""

    lines: Sequence[ManifestFile] = ()
    sets: Sequence[FileSet[FileSource]] = ()
    out: Mapping[str, DroppedBy] | None = None
    reasons: Sequence[KeptReason] = ()
    """Why each task is kept."""

    def of(self, path: str, tasks: Sequence[FileScanTask], io: FileIO) -> list[tuple[str, str]]:
        """Return each stage that looked at a file, and what it found. Opens manifests until one has the file.

        Raises :class:`UsageError` if the file is no live data file of the snapshot.
        """
        place, row = self._row_of(path, io)
        return [*self._said(path, place, row, tasks)]

    def _row_of(self, path: str, io: FileIO) -> tuple[int, int]:
        data = set(map(id, data_of(self.lines)))
        for place, line in enumerate(self.lines):
            if id(line) in data:
                for row, entry in enumerate(live_entries(io, line)):
                    if entry.data_file.file_path == path:
                        return place, row
        raise UsageError("the snapshot has no such data file", file=path)

    def _said(self, path: str, place: int, at: int, tasks: Sequence[FileScanTask]) -> Iterator[tuple[str, str]]:
        files = next((files for files in self.sets if place in files.source.places), None)
        yield DroppedBy.SUMMARY.value, OUT if files is None else KEPT
        if files is None:
            return
        row = int(files.source.spans[list(files.source.places).index(place), 0]) + at
        for by, _, is_kept in files.judgements(row):
            yield by.value, KEPT if is_kept else OUT
            if not is_kept:
                return
        if (by_task := (self.out or {}).get(path)) is not None:
            yield by_task.value, OUT
            return
        kept = next(at for at, task in enumerate(tasks) if task.file.file_path == path)
        yield "the plan", f"kept: {self.reasons[kept].text}"
