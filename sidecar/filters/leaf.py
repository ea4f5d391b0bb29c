"""Describes the leaf columns of Parquet files, and columns of any format for the comparison with literals."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding

WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
"""Bytes of a PLAIN value of the physical types whose width is always the same."""

_MOST_DIGITS = {"INT32": 9, "INT64": 18}


@dataclass(frozen=True)
class ComparedColumn:
    """The type and the encoding in which literals are compared with a column's bounds.

    ``index`` identifies the column: the number of a Parquet leaf, the id of an ORC column, or a field id.
    Literals are values of ``iceberg_type``; bounds are decoded values of ``encoding``.
    """

    index: int
    iceberg_type: str
    encoding: Encoding
    name: str = ""
    """The name for messages."""

    @property
    def may_have_filters(self) -> bool:
        """Whether files can have filters of the column. Booleans have none."""
        return ColumnType.parse(self.iceberg_type).family != "boolean"

    def compares_with(self, iceberg_type: str) -> bool:
        """Return whether literals of ``iceberg_type`` can be compared with the column's bounds."""
        return ColumnType.parse(iceberg_type).compares_with(ColumnType.parse(self.iceberg_type))


@dataclass(frozen=True)
class Annotation:
    """The logical type of a leaf: its name in ``kind`` (``""`` if it has none), and its parameters."""

    kind: str = ""
    scale: int = 0
    precision: int = 0
    unit: str = ""
    utc: bool = False
    signed: bool = True
    bits: int = 0


@dataclass(frozen=True)
class Leaf:
    """A leaf column. ``index`` counts leaves from 0, as ``columns`` of each row group does."""

    index: int
    parts: tuple[str, ...]
    field_id: int | None
    physical: str
    type_length: int | None
    annotation: Annotation
    encoding: Encoding
    max_def: int
    max_rep: int
    normalized_interval: bool = False
    """Whether the file's key-value metadata says that filters of INTERVAL columns hash normalised values."""

    @property
    def path(self) -> str:
        """The names of the path joined by dots: ``a.list.element``."""
        return ".".join(self.parts)

    own_path = path

    @property
    def width(self) -> int | None:
        """Bytes of a PLAIN value, ``None`` for BOOLEAN and BYTE_ARRAY."""
        return self.type_length if self.physical == "FIXED_LEN_BYTE_ARRAY" else WIDTHS.get(self.physical)

    @property
    def iceberg_type(self) -> str:
        """The Iceberg type that literals for this column have where a file is read without a table."""
        return _iceberg_type(self)

    @property
    def compared(self) -> ComparedColumn:
        """The leaf for the comparison with literals of :attr:`iceberg_type`."""
        return ComparedColumn(self.index, self.iceberg_type, self.encoding, self.path)


def _iceberg_type(leaf: Leaf) -> str:
    name, annotation = leaf.encoding.name, leaf.annotation
    base, _, detail = name.partition("/")
    if annotation.kind == "DECIMAL" and detail.startswith("decimal"):
        most = _MOST_DIGITS.get(leaf.physical, 38)
        return f"decimal({min(annotation.precision or most, 38)}, {annotation.scale})"
    if detail.startswith("timestamp"):
        return f"timestamp{'tz' if annotation.utc else ''}{'_ns' if annotation.unit == 'ns' else ''}"
    if detail:
        return detail.partition("-")[0]  # date or time
    if base == "byte_array":
        return "string" if annotation.kind in ("STRING", "ENUM", "JSON") else "binary"
    if base.startswith("flba"):
        return "uuid" if annotation.kind == "UUID" and leaf.type_length == 16 else f"fixed[{leaf.type_length}]"
    others = {"int32": "int", "int64": "long", "uint32": "long", "uint64": "decimal(20, 0)"}
    others |= {"int96": "timestamp", "float16": "float", "interval": "fixed[12]"}
    return others.get(name, name)  # boolean, float, double
