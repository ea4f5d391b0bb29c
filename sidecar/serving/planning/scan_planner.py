"""Answers plan requests: the :class:`sidecar.serving.answers.Planner` of both servers.

A plan of few files is made of what :func:`sidecar.planning.planner.plan` returns. The files of other plans are joined
from manifests that are kept in memory, in pages if there are many. A later page is planned again from its token, unless
this process still has the files that the plan kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.access import Access
from sidecar.crypto.aes import check_key
from sidecar.crypto.keys import EncryptionKeys
from sidecar.iceberg.deletes.delete_files import FileKey, partition_of
from sidecar.iceberg.statistics_files.find_sidecar import SidecarOpener
from sidecar.serving.answers import Caller, Identifier, PlanAnswer, PlanFacts
from sidecar.serving.planning.bounded_cache import BoundedCache
from sidecar.serving.planning.costs import DIRECT_FILES, ORDINALS_OF_PLAN
from sidecar.serving.planning.file_selection import FileSelection, select_files
from sidecar.serving.planning.limits import within_limits
from sidecar.serving.planning.live_snapshot import LiveSnapshot, ManifestCaches
from sidecar.serving.planning.missing_partition_columns import MissingPartitionColumns
from sidecar.serving.planning.scan_binding import ScanBinding, bindings_of, schemas_of, without_catalog
from sidecar.serving.planning.selected_columns import may_replace_files, reads_all_columns
from sidecar.serving.planning.served_tables import ServedTables
from sidecar.serving.planning.sidecar_pool import SidecarPool
from sidecar.serving.planning.unindexed_predicates import UnindexedPredicates
from sidecar.serving.planning.whole_partitions import refuse_unsure_partitions
from sidecar.serving.protocol.encoding import EncodedTask, encode_answer, encode_file
from sidecar.serving.protocol.errors import ErrorType, RefusedRequestError
from sidecar.serving.protocol.filters import any_row, column_of_client, residual_of
from sidecar.serving.protocol.page_tokens import LONGEST_REQUEST, Page, seal, unseal
from sidecar.serving.protocol.requests import PlanRequest, parse_plan_request, parse_tasks_request

PAGE_FILES = 2000
"""The most files of one answer, if the rest can be asked for."""
CACHE_BYTES = 256 << 20
"""About how much memory manifests take in one process."""
MOST_RESIDUALS = 16 << 20
"""The most bytes that the residuals of an answer take. Longer ones become a predicate that every row meets."""
_KEPT_ORDINALS = 1 << 20
_LATEST_VERSION = 3


class ScanPlanner:
    """Plans scans of tables that callers have loaded.

    ``key`` seals page tokens: 16, 24 or 32 bytes that all workers share; by default random bytes of this process.
    ``tables`` are patterns (``db.*``) of the tables that are planned on the server, ``None`` for all. ``page_files`` is
    the most files of one answer. ``cache_bytes`` is about how much memory manifests may take. ``shares_manifests`` says
    that all callers of a table may read what any version of its metadata names, as it is where the server reads
    storage with rights of its own; otherwise a manifest is kept for one version of the metadata. ``is_read_only`` says
    that nobody commits to these tables by what is planned here. ``encryption_keys`` open encrypted sidecars.
    """

    def __init__(
        self,
        key: bytes | None = None,
        *,
        tables: Sequence[str] | None = None,
        page_files: int = PAGE_FILES,
        cache_bytes: int = CACHE_BYTES,
        shares_manifests: bool = False,
        is_read_only: bool = False,
        encryption_keys: EncryptionKeys | None = None,
    ) -> None:
        self._is_read_only = is_read_only
        self._key = os.urandom(32) if key is None else check_key(key)
        self._served = ServedTables(tables)
        self._unindexed = UnindexedPredicates()
        self._page_files = page_files
        self._shares_manifests = shares_manifests
        self._encryption_keys = encryption_keys
        self._sidecars = SidecarPool()
        self._caches = ManifestCaches.of_size(cache_bytes)
        self._plans: BoundedCache[tuple[object, ...], list[int]] = BoundedCache(
            _KEPT_ORDINALS, lambda ordinals: ORDINALS_OF_PLAN + len(ordinals)
        )

    def plan(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        """Answer ``POST .../plan``. Raises errors of :mod:`sidecar.errors` for what is wrong with request or table."""
        with within_limits():
            return self._plan(table, identifier, request, caller)

    def _plan(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        question = parse_plan_request(request)
        snapshot = _snapshot(table, question)
        if snapshot is None:
            return PlanAnswer(encode_answer([], b"true", is_plan=True), PlanFacts())
        schemas = [table.schema(), *table.schemas().values()]
        may_replace = not self._is_read_only and may_replace_files(question.select, schemas)
        scan = self._scan(table, identifier, snapshot, question, caller, may_replace)
        scan.choose(wants_sentinel=not self._is_read_only)
        direct = scan.selections[0].tasks
        few = min(self._page_files, DIRECT_FILES)
        is_direct = len(scan.selections) == 1 and direct is not None and len(direct) <= few
        if is_direct and table.metadata.format_version < _LATEST_VERSION:
            tasks = scan.direct_tasks()
            return PlanAnswer(scan.encode(tasks, is_plan=True), scan.facts(len(tasks)))
        ordinals, extra = scan.ordinals(), scan.sentinels()
        ranges = self._ranges(ordinals, scan.files.starts[-1], request)
        # Requests for further pages find the plan in memory. A worker without it plans again, by the token.
        if len(ranges) > 1:
            self._plans.get(_plan_key(table, identifier, snapshot, request, caller), lambda: ordinals)
        tokens = [
            seal(
                Page(request, snapshot.snapshot_id, start, end, tuple(extra), may_replace),
                self._key,
                _seal_of(table, identifier),
            )
            for start, end in ranges[1:]
        ]
        first = [*(one for one in ordinals if one < ranges[0][1]), *extra]
        tasks = scan.tasks_of(first)
        return PlanAnswer(scan.encode(tasks, tokens, is_plan=True), scan.facts(len(ordinals) + len(extra)))

    def tasks(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        """Answer ``POST .../tasks``: the page that a plan task stands for. Raises the errors of :meth:`plan`."""
        with within_limits():
            return self._tasks(table, identifier, request, caller)

    def _tasks(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        page = unseal(parse_tasks_request(request), self._key, _seal_of(table, identifier))
        question = parse_plan_request(page.request)
        snapshot = table.metadata.snapshot_by_id(page.snapshot_id)
        if snapshot is None:
            raise RefusedRequestError("the snapshot of the plan has expired", ErrorType.NO_SUCH_PLAN_TASK)
        scan = self._scan(table, identifier, snapshot, question, caller, page.may_replace)

        def plan_again() -> list[int]:
            scan.choose(wants_sentinel=False)
            return scan.ordinals()

        ordinals = self._plans.get(_plan_key(table, identifier, snapshot, page.request, caller), plan_again)
        wanted = [one for one in ordinals if page.start <= one < page.end and one not in page.left_out]
        tasks = scan.tasks_of(wanted)
        return PlanAnswer(scan.encode(tasks, is_plan=False), scan.facts(len(tasks)))

    def mode(self, table: Table, identifier: Identifier) -> Literal["server", "client"]:
        """Return who should plan scans of the table, for ``config`` of its load-table response."""
        return "server" if self._served.has(table, identifier) else "client"

    def _scan(
        self,
        table: Table,
        identifier: Identifier,
        snapshot: Snapshot,
        question: PlanRequest,
        caller: Caller,
        may_replace: bool,
    ) -> _Scan:
        scope = identifier, None if self._shares_manifests else table.metadata_location
        own, access = without_catalog(table), Access(table.io, self._encryption_keys)
        files = LiveSnapshot(own, access, snapshot, self._caches, scope, for_pyiceberg=caller.is_pyiceberg)
        return _Scan(files, question, caller, may_replace, self._unindexed, self._sidecars.opener(scope))

    def _ranges(self, ordinals: Sequence[int], count: int, request: bytes) -> list[tuple[int, int]]:
        """Divide the ordinals of all files into the ranges of pages. Each has at most a page of the kept files."""
        if len(request) > LONGEST_REQUEST:
            return [(0, count)]
        ends = [*ordinals[self._page_files :: self._page_files], count]
        return list(zip([0, *ends[:-1]], ends, strict=True))


class _Scan:
    """One request for one snapshot. ``may_replace``: the client may replace the files of the plan by what it reads."""

    def __init__(
        self,
        files: LiveSnapshot,
        question: PlanRequest,
        caller: Caller,
        may_replace: bool,
        unindexed: UnindexedPredicates,
        opener: SidecarOpener,
    ) -> None:
        self.files = files
        self.selections: list[FileSelection] = []
        self._question = question
        self._caller = caller
        self._for_pyiceberg = caller.is_pyiceberg
        self._may_replace = may_replace
        self._absent = MissingPartitionColumns(files.table, question.select) if caller.is_pyiceberg else None
        self._unindexed = unindexed
        self._opener = opener

    def choose(self, *, wants_sentinel: bool) -> None:
        """Choose the files for each meaning of the request."""
        table, snapshot, question = self.files.table, self.files.snapshot, self._question
        if wants_sentinel:  # Spark reads all columns of one schema before it deletes
            reads_all = any(reads_all_columns(question.select, schema) for schema in schemas_of(table, snapshot))
            wants_sentinel = reads_all and not self._for_pyiceberg
        if not self._for_pyiceberg:
            refuse_unsure_partitions(table, self.files.spec_ids, question, self._bindings)
        self.selections = [
            select_files(
                self.files,
                binding,
                wants_sentinel=wants_sentinel,
                unindexed=self._unindexed,
                opener=self._opener,
            )
            for binding in self._bindings
        ]

    @cached_property
    def _bindings(self) -> list[ScanBinding]:
        """The meanings of the request."""
        return bindings_of(self.files.table, self.files.snapshot, self._question, only_hex=self._caller.is_java)

    def direct_tasks(self) -> list[EncodedTask]:
        """Return the tasks of a plan, without opening manifests of data files that the plan did not open."""
        selection = self.selections[0]
        tasks = []
        for task in selection.tasks or ():
            file, spec_id = task.file, task.file.spec_id
            if self._absent and self._absent.may_be_of(spec_id, partition_of(file)):
                self._absent.refuse(file, spec_id)
            encoded = encode_file(file, spec_id, self.files.partition_types(spec_id), for_pyiceberg=self._for_pyiceberg)
            sequence = selection.sequence_numbers[file.file_path]
            deletes = self._deletes(file.file_path, sequence, spec_id, partition_of(file))
            tasks.append(EncodedTask(encoded, deletes, selection.is_decided(file, spec_id)))
        if selection.sentinel is not None:
            manifest, at = self.files.at(selection.sentinel)
            deletes = self._deletes(
                manifest.paths[at], manifest.sequence_numbers[at], manifest.spec_id, manifest.partitions[at]
            )
            tasks.append(EncodedTask(manifest.encoded(at, self._for_pyiceberg), deletes))
        return tasks

    def ordinals(self) -> list[int]:
        """Return the ordinals of the files of all selections, rising, without sentinels."""
        kept: set[int] = set()
        for selection in self.selections:
            if selection.ordinals is not None:
                kept.update(selection.ordinals)
                continue
            kept.update(self.files.rows_of({task.file.file_path for task in selection.tasks or ()}))
        return sorted(kept)

    def sentinels(self) -> list[int]:
        """Return the ordinals of sentinels that no selection has anyway."""
        found = {one.sentinel for one in self.selections if one.sentinel is not None}
        return sorted(found - set(self.ordinals()))

    def tasks_of(self, ordinals: Sequence[int]) -> list[EncodedTask]:
        """Return the tasks of files by their ordinals."""
        is_decided = self.selections[0].is_decided if len(self.selections) == 1 else None
        wanted = iter(sorted(ordinals))
        following = next(wanted, None)
        tasks: list[EncodedTask] = []
        for number, manifest in enumerate(self.files.manifests):
            start, end = self.files.starts[number : number + 2]
            if following is None or following >= end:
                continue
            decided: dict[object, bool] = {}
            while following is not None and following < end:
                at, partition = following - start, manifest.partitions[following - start]
                if self._absent and self._absent.may_be_of(manifest.spec_id, partition):
                    self._absent.refuse(manifest.file(at), manifest.spec_id)
                if is_decided is not None and partition not in decided:
                    decided[partition] = is_decided(manifest.file(at), manifest.spec_id)
                deletes = self._deletes(manifest.paths[at], manifest.sequence_numbers[at], manifest.spec_id, partition)
                encoded = manifest.encoded(at, self._for_pyiceberg)
                tasks.append(EncodedTask(encoded, deletes, decided.get(partition, False)))
                following = next(wanted, None)
        return tasks

    def _deletes(self, path: str, sequence_number: int, spec_id: int, partition: tuple[object, ...]) -> Sequence[bytes]:
        deletes = self.files.deletes
        if not deletes.count:
            return ()
        return [
            deletes.encoded(one, self.files.partition_types(one.spec_id), self._for_pyiceberg)
            for one in deletes.applying_to(path, FileKey(sequence_number, spec_id, partition))
        ]

    def encode(self, tasks: Sequence[EncodedTask], plan_tasks: Sequence[str] = (), *, is_plan: bool) -> list[bytes]:
        """Return the body of the answer in pieces."""
        return encode_answer(tasks, self._residual(len(tasks)), plan_tasks, is_plan=is_plan)

    def _residual(self, count: int) -> bytes | None:
        """Return the residual of ``count`` tasks; ``None`` if clients shall make it of their own filter.

        Whoever may replace files gets none by which a reader skips rows. Only Java must have one, and understands an
        opaque one.
        """
        question, hides = self._question, self._may_replace and not self._for_pyiceberg
        if hides and not self._caller.is_java:
            return None
        options = question.case_sensitive, question.select
        schemas = [binding.table.schema() for binding in self._bindings]
        schemas += schemas_of(self.files.table, self.files.snapshot)
        residual = json.dumps(
            residual_of(question.filter, schemas, *options, only_hex=self._caller.is_java, is_opaque=hides)
        ).encode()
        if len(residual) * count > MOST_RESIDUALS:
            residual = json.dumps(any_row(column_of_client(schemas, *options))).encode()
        return residual

    def facts(self, kept: int) -> PlanFacts:
        """Return what the plan did."""
        return PlanFacts(
            files_total=self.files.count,
            files_kept=kept,
            dropped=self.selections[0].dropped if len(self.selections) == 1 else {},
            index_bytes_read=sum(one.index_bytes for one in self.selections),
            sentinel=any(one.sentinel is not None for one in self.selections),
            fallback=next((one.fallback for one in self.selections if one.fallback), ""),
            snapshot_id=self.files.snapshot.snapshot_id,
        )


def _snapshot(table: Table, question: PlanRequest) -> Snapshot | None:
    if question.snapshot_id is None:
        return table.metadata.current_snapshot()
    snapshot = table.metadata.snapshot_by_id(question.snapshot_id)
    if snapshot is None:
        raise RefusedRequestError(f"the table has no snapshot {question.snapshot_id}")
    return snapshot


def _seal_of(table: Table, identifier: Identifier) -> bytes:
    return json.dumps([str(table.metadata.table_uuid), *identifier]).encode()


def _plan_key(
    table: Table, identifier: Identifier, snapshot: Snapshot, request: bytes, caller: Caller
) -> tuple[object, ...]:
    """Return all that the files of a plan depend on: literals of one text mean other bytes for another client."""
    version = table.metadata_location, str(table.metadata.table_uuid), snapshot.snapshot_id
    return identifier, *version, hashlib.sha256(request).digest(), caller.is_java, caller.is_pyiceberg
