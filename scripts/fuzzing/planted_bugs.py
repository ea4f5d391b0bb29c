"""Bugs that sidecar once had, or would have without a check, as changes of source text.

A process plants one before it imports anything.

Each change takes away one check. The text that it replaces must be in the module exactly once, so a change that no
longer fits is an error and not a bug that nobody finds.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class TextChange:
    """A text of a module's source, and the text in its place."""

    module: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        return ROOT / (self.module.replace(".", "/") + ".py")

    def changed(self, source: str) -> str:
        """The source with the change. Raises ``ValueError`` unless its text occurs once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.module} has the text {self.old!r} {source.count(self.old)} times, not once")
        return source.replace(self.old, self.new)


@dataclass(frozen=True)
class PlantedBug:
    """A bug, and the fuzzer of the decoder that has it."""

    name: str
    what: str
    decoder: str
    changes: tuple[TextChange, ...]


def _bug(name: str, what: str, decoder: str, *changes: tuple[str, str, str]) -> PlantedBug:
    return PlantedBug(name, what, decoder, tuple(TextChange(f"sidecar.{place}", *texts) for place, *texts in changes))


BUGS = {
    bug.name: bug
    for bug in (
        _bug(
            "thrift-recursion", "no limit of nested Thrift structures", "parquet-footer",
            ("parquet.thrift", "    def struct(self, depth: int) -> Struct:\n        if depth > MAX_DEPTH:",
             "    def struct(self, depth: int) -> Struct:\n        if depth < 0:"),
        ),
        _bug(
            "endless-rows", "pieces of 2^40 stated rows are listed", "parquet-footer",
            ("parquet.scan.page_scan", "todo = rows.pieces(MAX_ROWS)", "todo = iter(list(rows.pieces(MAX_ROWS)))"),
            ("parquet.scan.page_reader", "if chunk.num_values < self._group.num_rows:", "if chunk.num_values < 0:"),
        ),
        _bug(
            "column-and-group", "a schema element is read as a column that Arrow reads as a group", "parquet-footer",
            ("parquet.schema", "elif element.integer(5):", "elif False:"),
        ),
        _bug(
            "negative-length", "negative lengths of ranges are not refused", "parquet-footer",
            ("storage.ranges", "        if length < 0:\n            raise DamagedFileError(\n                \"a part",
             "        if False:\n            raise DamagedFileError(\n                \"a part"),
            ("storage.source", "    if offset < 0 or length < 0 or offset + length > size:",
             "    if offset + length > size:"),
        ),
        _bug(
            "filter-size", "numBytes of a filter is not checked", "parquet-filter",
            ("parquet.bloom", "    if not MIN_BYTES <= num_bytes <= MAX_BYTES:", "    if False:"),
        ),
        _bug(
            "index-lists", "lists of a column index may differ in length", "parquet-page-index",
            ("parquet.page_indexes.page_index", "    if not len(flags) == len(lower) == len(upper):", "    if False:"),
        ),
        _bug(
            "dictionary-size", "room is made for any number of dictionary values", "parquet-page-header",
            ("parquet.pages", "    if page.num_values * smallest > page.uncompressed_size:", "    if False:"),
        ),
        _bug(
            "page-checksum", "checksums of pages are not compared", "parquet-page",
            ("parquet.pages", "    if page.crc is not None and zlib.crc32(data) != page.crc & 0xFFFFFFFF:",
             "    if False:"),
        ),
        _bug(
            "decimal-scale", "ORC bounds of decimals are compared at any scale", "orc-tail",
            ("orc.statistics.column_statistics", "    if (column.scale or 0) > MAX_DIGITS:", "    if False:"),
        ),
        _bug(
            "decimal-precision", "ORC decimals of any precision are given to Arrow", "orc-tail",
            ("orc.schema", "    if precision > MAX_DIGITS or scale > precision:", "    if False:"),
        ),
        _bug(
            "type-circle", "ORC types may be their own children", "orc-tail",
            ("orc.schema", "            if not number < child < len(children) or parents[child] is not None:",
             "            if child >= len(children):"),
        ),
        _bug(
            "overlapping-stripes", "an ORC footer may name one stripe many times", "orc-tail",
            ("orc.tail", "        if stored > end:", "        if False:"),
        ),
        _bug(
            "missing-positions", "positions of ORC row groups are not counted", "orc-row-index",
            ("orc.row_index", "    if len(positions) != sum(counts):", "    if False:"),
        ),
        _bug(
            "inflate-error", "errors of zlib come out of ORC streams", "orc-stream",
            ("orc.compression", "    zlib.error,\n    lz4", "    lz4"),
        ),
        _bug(
            "lz4-size", "a stated size of an LZ4 frame is believed", "puffin-footer",
            ("puffin.codecs", "    if size > _LZ4_MAX_RATIO * len(data):", "    if False:"),
            ("puffin.codecs", "        if size > limit:", "        if False:"),
        ),
        _bug(
            "half-characters", "halves of characters in key material", "key-material",
            ("crypto.key_material", "        material = _object(entry) if isinstance(entry, str) else entry",
             "        material = _object(entry.encode()) if isinstance(entry, str) else entry"),
        ),
        _bug(
            "theta-range", "hashes of a sketch are not compared with theta", "theta-sketch",
            ("filters.theta", "        if not 0 < theta <= MAX_THETA or not in_range:", "        if False:"),
        ),
        _bug(
            "arrow-offsets", "offsets in Arrow streams are not validated", "sidecar-units",
            ("bundle.units.arrow_tables", "        table.validate(full=True)\n", ""),
        ),
        _bug(
            "coverage-runs", "runs of a coverage may have more units than the segment", "sidecar-units",
            ("bundle.units.coverage", "    if total != num_units or (runs", "    if (runs"),
        ),
        _bug(
            "seal", "checksums of pieces are not compared", "sidecar-filter",
            ("bundle.envelopes.checksum", "    return bool(stored == digest(context, data[:-SEAL_BYTES]))",
             "    return stored >= 0"),
        ),
        _bug(
            "own-blocks", "a filter's own number of blocks may be 0", "sidecar-filter",
            ("bundle.filters.pages", "    if (own_blocks < 1).any() or (", "    if False and ("),
        ),
        _bug(
            "first-entry", "the place of a group's first index may be beyond 2^63", "sidecar-index",
            ("bundle.indexes.index_blob", "        if start > room or lengths", "        if lengths"),
            ("bundle.indexes.index_blob", " or start + int((sizes + overhead).sum()) > room:", ":"),
        ),
        _bug(
            "directory-place", "places in the directory are not checked", "sidecar-contents",
            ("bundle.toc", "    if len(place) != 2 or not all(type(part)", "    if False and all(type(part)"),
        ),
        _bug(
            "footer-fields", "the field of a blob is that of the footer, which has no checksum", "sidecar-footer",
            ("bundle.sidecar_file", "            entry = directory.get(identity_of(blob)) or",
             "            own = (e for e in directory.values() if (e.offset, e.length) == (blob.offset, blob.length))\n"
             "            entry = next(own, None) or"),
            ("bundle.sidecar_file", "    if blob.fields != (toc.field_id,) or toc", "    if toc"),
            ("bundle.sidecar_file", "opened[toc.field_id] = form.open(",
             "opened[blob.fields[0] if blob.fields else toc.field_id] = form.open("),
        ),
        _bug(
            "state-types", "members of the state are used as what they should be", "sidecar-state",
            ("bundle.runs", "    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):",
             "    except (KeyError, TypeError, ValueError):"),
        ),
        _bug(
            "not-of-unknown", "NOT of a filter that is not understood is FALSE", "plan-request",
            ("serving.protocol.filters",
             "            negated = Not(child.expression) if child.is_exact else AlwaysTrue()",
             "            negated = Not(child.expression)"),
        ),
        _bug(
            "token-errors", "page tokens that are not base64 are errors of the server", "plan-request",
            ("serving.protocol.page_tokens", "    except (DamagedFileError, binascii.Error, ValueError) as error:",
             "    except DamagedFileError as error:"),
        ),
    )
}  # fmt: skip


class _Planter(importlib.abc.MetaPathFinder):
    """Finds the modules that a bug changes, and loads them with their other text. No byte code of it is kept."""

    def __init__(self, bug: PlantedBug) -> None:
        self._bug = bug

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        changes = [change for change in self._bug.changes if change.module == name]
        if not changes:
            return None
        loader = _ChangedSource(name, str(changes[0].path))
        loader.changes = changes
        return importlib.machinery.ModuleSpec(name, loader, origin=loader.path)


class _ChangedSource(SourceFileLoader):
    changes: Sequence[TextChange] = ()

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        for change in self.changes:
            source = change.changed(source)
        return compile(source, self.path, "exec", dont_inherit=True)


def plant(name: str) -> PlantedBug:
    """Plant a bug in this process, which must not have imported the modules that it changes."""
    bug = BUGS[name]
    loaded = [change.module for change in bug.changes if change.module in sys.modules]
    if loaded:
        raise RuntimeError(f"too late to plant {name}: {', '.join(loaded)} are imported")
    sys.meta_path.insert(0, _Planter(bug))
    return bug
