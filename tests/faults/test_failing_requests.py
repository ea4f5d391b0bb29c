"""Each request to storage and catalog fails once, before or after its effect: no harm, and the next run ends well.

A commit whose answer is lost is one of these requests. What two failures leave alike is checked once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.errors import SidecarError
from tests.faults.harness import OPERATIONS, check, copied, requests
from tests.faults.killing import state_of


def is_part_of_a_commit(request: str) -> bool:
    """Whether the outcome of a commit is not known if a request fails."""
    return request.startswith("commit") or (request.startswith("close") and request.endswith(".metadata.json"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_request_fails_once(name: str, prepared: Path, tmp_path: Path) -> None:
    failed, wrong, checked = 0, [], set[frozenset[object]]()
    while True:
        folder, seen = tmp_path / str(failed), []

        def answer(request: str, location: str, turn: int = failed, seen: list[str] = seen) -> None:
            seen.append(f"{request} {location}")
            if len(seen) == turn + 1:
                raise ConnectionError("out of reach")

        table, outcome = copied(prepared, folder), "done"
        with requests(answer):
            try:
                OPERATIONS[name].run(table)
            except SidecarError as error:
                outcome = str(error)
        if len(seen) <= failed:
            break
        try:
            if is_part_of_a_commit(seen[failed]):
                deleted = [request for request in seen[failed:] if request.startswith("delete ")]
                assert deleted == [], "the commit may have succeeded"
            if (left := state_of(folder)) not in checked:
                checked.add(left)
                check(folder, name)
        except Exception as error:
            wrong.append(f"request {failed} failed ({seen[failed]}), the run said: {outcome}; then {error!r}")
        failed += 1
    assert wrong == []
    assert failed >= 8
