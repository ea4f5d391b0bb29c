"""A planner that keeps all files, and remembers what it was asked."""

from __future__ import annotations

import json
from typing import Any, Literal

from pyiceberg.table import Table

from sidecar.serving.answers import Caller, Identifier, PlanAnswer, PlanFacts


class StandInPlanner:
    def __init__(self) -> None:
        self.asked: list[tuple[str, Identifier, dict[str, Any], Caller]] = []
        self.tables: list[Table] = []
        self.says: Literal["server", "client"] = "server"
        self.raises: Exception | None = None
        self.fallback = ""

    def plan(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        return self._answer("plan", table, identifier, request, caller)

    def tasks(self, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        return self._answer("tasks", table, identifier, request, caller)

    def mode(self, table: Table, identifier: Identifier) -> Literal["server", "client"]:
        return self.says

    def _answer(self, route: str, table: Table, identifier: Identifier, request: bytes, caller: Caller) -> PlanAnswer:
        self.asked.append((route, identifier, json.loads(request), caller))
        self.tables.append(table)
        if self.raises is not None:
            raise self.raises
        tasks = [
            {
                "data-file": {
                    "spec-id": 0,
                    "content": "data",
                    "file-path": task.file.file_path,
                    "file-format": "parquet",
                    "partition": [],
                    "file-size-in-bytes": task.file.file_size_in_bytes,
                    "record-count": task.file.record_count,
                },
                "residual-filter": True,
            }
            for task in table.scan().plan_files()
        ]
        document = {"status": "completed", "file-scan-tasks": tasks}
        facts = PlanFacts(len(tasks), len(tasks), index_bytes_read=7, fallback=self.fallback)
        return PlanAnswer([json.dumps(document).encode()], facts)
