"""The record of the runs that wrote a sidecar file: the last ones, and the indexes for which it was complete.

Both are properties of the Puffin file, so one read of the tail has them. They only save work and inform people. No
plan uses them, so a wrong or missing property costs time and never rows. The property ``sidecar.toc`` has their digest.

    sidecar.history     the last runs, oldest first
    sidecar.state       the snapshot of the last run, and for each column what was built and how many files lack it
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeAlias

from sidecar.bundle.envelopes.envelope import FIELD_VERSION, UNITS_VERSION
from sidecar.bundle.toc import check_properties
from sidecar.errors import SidecarError
from sidecar.results import Result

HISTORY_PROPERTY = "sidecar.history"
STATE_PROPERTY = "sidecar.state"
LAYOUT = f"{UNITS_VERSION}.{FIELD_VERSION}"
"""The versions of blobs that are written and read. Blobs of other versions answer nothing."""
MOST_RUNS = 20
"""The most runs that a file remembers."""
_MOST_SECONDS = 1e10
"""The longest run, three centuries. Longer ones are damage; NaN and infinity cannot be written as JSON."""

IndexOfField: TypeAlias = tuple[int, str]
"""A field id and a kind of index."""


@dataclass(frozen=True, repr=False, slots=True)
class RunRecord(Result):
    """One run that wrote a sidecar file."""

    at: str
    """When it began, ISO 8601 in UTC."""
    seconds: float
    """The seconds from the start of the run until its file was written."""
    what: str
    """The operation: ``build``, ``refresh`` or another command that wrote the file."""
    snapshot_id: int
    """The snapshot that the file was registered for."""
    files: int
    """The data files of the snapshot."""
    indexed: int
    """The data files that the run indexed."""
    carried: int
    """The data files that an earlier sidecar answered for."""
    left: int
    """The data files that the run could or should not index."""
    bytes_read: int
    """The bytes read from data files."""
    bytes_carried: int
    """The bytes of earlier segments that were copied."""


@dataclass(frozen=True)
class BuiltColumn:
    """The indexes of one column in a sidecar file.

    ``type`` is the Iceberg type that sketches were hashed in, ``fpp`` the rate that was asked for (``auto`` or a
    number), ``left`` the number of the snapshot's files that could be indexed and lack an index, by kind; kinds that
    all these files have are not in it.
    """

    type: str
    kinds: tuple[str, ...]
    fpp: float | str
    left: Mapping[str, int] = field(default_factory=dict)

    def lacking(self, files: Mapping[str, int]) -> BuiltColumn:
        """Return the column after it lost indexes of files: their number by kind."""
        found = {kind: self.left.get(kind, 0) + files.get(kind, 0) for kind in self.kinds}
        return replace(self, left={kind: count for kind, count in found.items() if count})


@dataclass(frozen=True)
class SidecarState:
    """The state for which a sidecar file was complete when it was written: a snapshot, a name mapping, columns by field
    id.

    ``mapping`` is a digest of the table's name mapping, because columns of files without field ids depend on it.
    ``layout`` is :data:`LAYOUT` of the version that wrote the file; empty if that did not say it.
    """

    snapshot_id: int
    mapping: str
    columns: Mapping[int, BuiltColumn] = field(default_factory=dict)
    layout: str = ""

    def lacking(self, files: Mapping[IndexOfField, int]) -> SidecarState:
        """Return the state after columns lost indexes of files: their number by field id and kind."""
        lost: dict[int, dict[str, int]] = {}
        for (field_id, kind), count in files.items():
            lost.setdefault(field_id, {})[kind] = count
        return replace(self, columns={i: column.lacking(lost.get(i, {})) for i, column in self.columns.items()})


def history_of(properties: Mapping[str, str]) -> list[RunRecord]:
    """Return the runs in a file's properties, oldest first. What cannot be read is left out."""
    runs = _parsed(properties.get(HISTORY_PROPERTY), list) or []
    names = {one.name: one.type for one in fields(RunRecord)}
    return [RunRecord(**{name: run[name] for name in names}) for run in runs if _is_run(run)]


def history_property(earlier: Iterable[Mapping[str, str]], run: RunRecord) -> str:
    """Return the property's text: the runs in the properties of ``earlier`` files, each once, and then ``run``."""
    known = dict.fromkeys(one for properties in earlier for one in history_of(properties))
    runs = sorted(known, key=lambda one: one.at)[-(MOST_RUNS - 1) :]
    return json.dumps([asdict(one) for one in (*runs, run)], separators=(",", ":"))


def has_settled(properties: Mapping[str, str], snapshot_id: int) -> bool:
    """Return whether a refresh without a new file has written the file for a snapshot, so that nothing is left to
    merge."""
    match history_of(properties)[-1:]:
        case [RunRecord(what="refresh", snapshot_id=last, indexed=0)]:
            return last == snapshot_id
    return False


def state_of(properties: Mapping[str, str]) -> SidecarState | None:
    """Return the state in a file's properties; ``None`` if there is none, or if it cannot be read or makes no sense."""
    found = _parsed(properties.get(STATE_PROPERTY), dict)
    try:
        if found is None:
            return None
        columns = {int(i): _column(column) for i, column in found["columns"].items()}
        return SidecarState(int(found["snapshot"]), str(found["mapping"]), columns, str(found.get("layout", "")))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def intact_state_of(properties: Mapping[str, str]) -> SidecarState | None:
    """Return the state in a file's properties if these are as they were written, else ``None``."""
    try:
        check_properties(properties)
    except SidecarError:
        return None
    return state_of(properties)


def state_property(state: SidecarState) -> str:
    """Return the property's text."""
    columns = {str(i): asdict(column) for i, column in sorted(state.columns.items())}
    content = {"snapshot": state.snapshot_id, "mapping": state.mapping, "columns": columns, "layout": state.layout}
    return json.dumps(content, separators=(",", ":"))


def _column(found: Mapping[str, Any]) -> BuiltColumn:
    fpp = found["fpp"]
    rate = fpp if fpp == "auto" else float(fpp)
    left = {str(kind): int(count) for kind, count in found["left"].items()}
    if any(count < 0 for count in left.values()) or not (rate == "auto" or 0 < rate < 1):
        raise ValueError("the state of a column is out of range")
    return BuiltColumn(str(found["type"]), tuple(map(str, found["kinds"])), rate, left)


def _is_run(run: Any) -> bool:
    texts, numbers = {"at", "what"}, {"seconds"}
    if not isinstance(run, dict):
        return False
    wanted = {
        one.name: str if one.name in texts else (int, float) if one.name in numbers else int
        for one in fields(RunRecord)
    }
    is_typed = all(isinstance(run.get(name), kind) for name, kind in wanted.items())
    return is_typed and 0 <= run["seconds"] <= _MOST_SECONDS


def _parsed(text: str | None, kind: type[Any]) -> Any:
    """Return the JSON value of ``text`` if it is of this kind, else ``None``."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, kind) else None
