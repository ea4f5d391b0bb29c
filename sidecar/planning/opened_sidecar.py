"""Owns the sidecar file of one plan: opens it when it is first needed, and turns its errors into warnings.

No query may fail because of a sidecar. After an error the sidecar is not asked again, and files are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.access import Access
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.errors import advisory
from sidecar.iceberg.refs import generations
from sidecar.iceberg.resolve import TodaysResolutions
from sidecar.iceberg.statistics_files.find_sidecar import SidecarOpener, may_have_pages, search_sidecar
from sidecar.iceberg.statistics_files.sidecar_files import SidecarFiles
from sidecar.planning.files.by_filters import IndexedFiles
from sidecar.planning.funnel import KeptFilesBecause, SidecarUsed
from sidecar.planning.row_groups import StoredPages
from sidecar.questions.conditions import Condition


class OpenedSidecar:
    """The nearest sidecar of a snapshot for one plan and its ``question``.

    ``access`` opens encrypted bundles. If it has the key of one of the ``fields`` that the plan compares,
    only segments whose authenticity a key confirms are used. ``opener`` opens statistics files, by default
    :func:`sidecar.iceberg.statistics_files.find_sidecar.open_registered`; with another one the plan reads nothing after
    it is closed.
    """

    def __init__(
        self,
        table: Table,
        snapshot: Snapshot | None,
        question: Condition | None,
        access: Access,
        fields: Iterable[int] = (),
        opener: SidecarOpener | None = None,
    ) -> None:
        self.table = table
        self.question = question
        self.resolutions = TodaysResolutions(table)
        self.used: SidecarUsed | None = None
        self.stored: StoredPages | None = None
        self.index: IndexedFiles | None = None
        """``None`` until the sidecar is opened, if there is none, and after it has failed."""
        self.otherwise = KeptFilesBecause.NOT_ASKED
        """The reason to keep files for which no filter answers."""
        self._snapshot_id = (
            0 if snapshot is None else snapshot.snapshot_id
        )  # a table without one has no files to ask about
        self._access = access
        self._fields = frozenset(fields)
        self._opener = opener
        self._sidecar: SidecarFile | None = None
        self._files: SidecarFiles | None = None
        self._is_open = False
        self._warnings: list[str] = []

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Make an error a warning. Then :attr:`index` is ``None``, and the sidecar is not asked again."""
        try:
            yield
        except Exception as error:
            self._warnings.append(f"the sidecar is not used: {advisory(error)}")
            self.index, self.otherwise = None, KeptFilesBecause.UNREADABLE
            if self._sidecar is not None:
                self._sidecar.on_close = None  # a sidecar that failed serves no other plan

    def open_for_question(self) -> None:
        """Open the sidecar, once, if filters are asked something."""
        if self.question is not None and not self._is_open:
            self.otherwise = KeptFilesBecause.NO_SIDECAR
            with self.guarded():
                self.open()

    def open(self) -> None:
        """Open the sidecar, once."""
        if self._is_open:
            return
        self._is_open = True
        search = search_sidecar(self.table, self._access, self._snapshot_id, self._opener)
        found, self._warnings = search.found, self._warnings + search.warnings
        if found is None:
            if self._warnings:
                self.otherwise = KeptFilesBecause.UNREADABLE
            return
        self._sidecar = found.sidecar
        behind = generations(self.table, self._snapshot_id, found.snapshot_id)
        path, size = found.statistics.statistics_path, found.statistics.file_size_in_bytes
        self.used = SidecarUsed(path, found.snapshot_id, behind)
        if self._opener is None:  # otherwise another plan may use the file while rows of this one are read
            self.stored = StoredPages(found.sidecar, self.resolutions, partial(self._access.open, path, size))
        self._files = found.files.of(found.sidecar.vouched_segments(self._fields))
        self.index = IndexedFiles(self._files, self.question, self.resolutions, found.sidecar.warnings)

    def may_have_pages(self) -> bool:
        """Return whether the sidecar can have page indexes, by its file name alone."""
        return may_have_pages(self.table, self._snapshot_id)

    def warn(self, *warnings: str) -> None:
        """Add warnings about errors in the index."""
        self._warnings += warnings

    @property
    def is_locked(self) -> bool:
        """Whether a bundle that was asked is encrypted and its key is missing."""
        return self._sidecar is not None and self._sidecar.is_locked

    @property
    def notes(self) -> list[str]:
        """Sentences about files that were found in the sidecar under an earlier path."""
        return [] if self._files is None else self._files.notes()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Errors that were found in the index, each once."""
        warnings = self._warnings + (list(self._sidecar.warnings) if self._sidecar else [])
        return tuple(dict.fromkeys(warnings))

    @property
    def index_reads(self) -> int:
        """The number of reads of the sidecar file."""
        return self._sidecar.index_reads if self._sidecar else 0

    @property
    def index_bytes(self) -> int:
        """The number of bytes read from the sidecar file."""
        return self._sidecar.index_bytes if self._sidecar else 0

    def close(self) -> None:
        """Close the sidecar file."""
        if self._sidecar is not None:
            self._sidecar.close()
