"""Looks for lost registrations in the history of a table's metadata, after processes have committed to it at once.

Every version of the metadata is a file, and names the version before it. The rules here are written anew, from the
page ``.github/design/protocol.md``; of sidecar's own code only the list of a file's contents is used:

- Another engine's commit replaces the entry of a snapshot, with all that was in it. A file of ours that was written
  before may bring some of that back for a while; it is not owed again.
- Our commit owes what was in the entry that it replaces, and pays it at once, or with a later commit of ours.
- Data files that a snapshot has not, such as those of its parents, are not owed to it: a merge leaves them out.
- An entry that is removed owes what others had put into it, and, unless its removal is acknowledged, all the rest. An
  expiry that gives up says what it had decided to remove.
- A refresh may leave the blobs of others alone in an entry that it supersedes, if another entry has the filters then.
- What a conflict names to its caller is no longer owed. Nor is anything for a snapshot that has expired, unless the
  debt was there for :data:`PATIENCE` versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pyiceberg.table import Table

import sidecar

PATIENCE = 60
"""Versions within which a debt is paid."""
FILTERS = "sidecar-sbbf-v1"
DATA_FILE = "data file"

Item = tuple[str, str]
"""Something that is in a statistics file: its kind, and which one."""
Entries = dict[int, str]
"""The paths of statistics files, by snapshot."""
LiveFiles = Callable[[int], frozenset[str] | None]
"""Gives the data files of a snapshot, or ``None`` if the snapshot or its manifests are gone."""


class Findings(NamedTuple):
    """What the history shows.

    Attributes:
        acknowledged: registrations that a caller was told of.
        replaced: entries that were replaced or removed.
        repaid: entries that were replaced before they were merged, and merged afterwards.
        lost: what is lost, a sentence each.
    """

    acknowledged: int
    replaced: int
    repaid: int
    lost: list[str]


class Version(NamedTuple):
    """A version of the metadata."""

    number: int
    snapshots: frozenset[int]
    entries: Entries


def version_of(location: str) -> int:
    """The number of a version of the metadata, which its file's name begins with."""
    return int(location.rpartition("/")[2].partition("-")[0])


def examine(table: Table, log: Sequence[Mapping[str, Any]]) -> Findings:
    """Compare the history of ``table``, which is in local files, with what its writers were told."""
    versions = list(_versions(table.refresh().metadata_location))[::-1]
    history = History(versions, log, _live_files(table))
    lost = history.walk()
    ever = {path for version in versions for path in version.entries.values()}
    told = [line for line in log if "by" in line]
    lost += [f"{line['path']} was acknowledged, and no version names it" for line in told if line["path"] not in ever]
    deleted = {_local(path) for line in log for path in line.get("deleted", ())}
    lost += [f"{path} was deleted, and a version names it" for path in ever if _local(path) in deleted]
    lost += [f"{path} is named, and gone" for path in versions[-1].entries.values() if not _local(path).exists()]
    return Findings(len(told), history.replaced, history.repaid, lost)


def _live_files(table: Table) -> LiveFiles:
    @cache
    def live(snapshot: int) -> frozenset[str] | None:
        if table.snapshot_by_id(snapshot) is None:
            return None
        try:
            return frozenset(task.file.file_path for task in table.scan(snapshot_id=snapshot).plan_files())
        except FileNotFoundError:
            return None

    return live


def _versions(location: str) -> Iterable[Version]:
    """The versions, from the newest to the oldest that is logged."""
    while True:
        metadata = json.loads(_local(location).read_text())
        entries = {entry["snapshot-id"]: entry["statistics-path"] for entry in metadata.get("statistics", ())}
        snapshots = frozenset(snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", ()))
        yield Version(version_of(location), snapshots, entries)
        earlier = metadata.get("metadata-log")
        if not earlier:
            return
        location = earlier[-1]["metadata-file"]


class History:
    """Walks from version to version, and keeps account of what is owed to each snapshot."""

    def __init__(self, versions: Sequence[Version], log: Sequence[Mapping[str, Any]], live: LiveFiles) -> None:
        self.versions = versions
        self.live = live
        self.by_others = {line["path"] for line in log if line.get("by") == "other"}
        self.removed = {path for line in log for path in line.get("expired", ())}
        self.superseded = {snapshot for line in log for snapshot in line.get("superseded", ())}
        self.forgiven = [line["file"] for line in log if line.get("given_up") and line.get("file")]
        self.owed: dict[int, dict[Item, int]] = {}
        self.void: set[Item] = set()
        self.replaced = self.repaid = 0

    def walk(self) -> list[str]:
        """Return what is lost."""
        lost: list[str] = []
        before = self.versions[0]
        for version in self.versions[1:]:
            for snapshot in {*before.entries, *version.entries}:
                old, new = before.entries.get(snapshot), version.entries.get(snapshot)
                if old != new and snapshot in version.snapshots:
                    self._change(snapshot, old, new, version)
            for snapshot in before.snapshots - version.snapshots:
                debts = self.owed.pop(snapshot, {})
                lost += self._lost(snapshot, {i: at for i, at in debts.items() if version.number - at > PATIENCE})
            before = version
        return lost + [text for snapshot, debts in self.owed.items() for text in self._lost(snapshot, debts)]

    def _change(self, snapshot: int, old: str | None, new: str | None, version: Version) -> None:
        """Take account of an entry that was set, replaced or removed."""
        self.replaced += old is not None
        debts = self.owed.setdefault(snapshot, {})
        if new in self.by_others:
            gone = {*debts, *(items(old) if old is not None else ())}
            self.void |= {item for item in gone if not is_ours(item)}
            debts.clear()
            return
        if old is not None:
            if new is None:
                is_told = old in self.removed or snapshot in self.superseded
            else:
                is_told = is_rest(new) and has_filters_of(old, version.entries.values())
            live = self.live(snapshot)
            owed = [
                item
                for item in items(old) - self.void
                if not (is_told and is_ours(item)) and (item[0] != DATA_FILE or live is None or item[1] in live)
            ]
            debts.update((item, version.number) for item in owed if item not in debts)
        if new is not None:
            paid = items(new) & debts.keys()
            self.repaid += any(debts[item] < version.number for item in paid)
            for item in paid:
                del debts[item]

    def _lost(self, snapshot: int, debts: Mapping[Item, int]) -> list[str]:
        named = {item for path in self.forgiven for item in items(path)}
        return [
            f"{kind} {what} of snapshot {snapshot} is lost since version {number}"
            for (kind, what), number in debts.items()
            if (kind, what) not in named
        ]


def is_ours(item: Item) -> bool:
    return item[0] != "token"


def has_filters_of(path: str, others: Iterable[str]) -> bool:
    """Whether some other file has filters of all columns of which ``path`` has some: a refresh took them over."""
    fields = {item for item in items(path) if item[0] not in (DATA_FILE, "token")}
    return any(fields <= items(other) for other in others)


@cache
def is_rest(path: str) -> bool:
    """Whether a file has what is left of a superseded one: the blobs of others alone."""
    return "sidecar.others" in footer_of(path).get("properties", {})


def footer_of(path: str) -> dict[str, Any]:
    data = _local(path).read_bytes()
    size = int.from_bytes(data[-12:-8], "little")
    footer: dict[str, Any] = json.loads(data[-12 - size : -12])
    return footer


@cache
def items(path: str) -> frozenset[Item]:
    """What is in a statistics file: tokens of others, columns with filters, and data files that are listed."""
    blobs = footer_of(path)["blobs"]
    tokens = {("token", blob["properties"]["token"]) for blob in blobs if "token" in blob.get("properties", {})}
    fields = {("filters of field", str(field)) for blob in blobs if blob["type"] == FILTERS for field in blob["fields"]}
    files: set[Item] = set()
    if fields:
        files = {(DATA_FILE, file.path) for file in sidecar.inspect(str(_local(path))).only.files}
    return frozenset(tokens | fields | files)


def _local(path: str) -> Path:
    return Path(path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:"))
