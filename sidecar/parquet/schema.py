"""Decodes the leaves of a Parquet schema: their paths, levels, field ids and encodings.

The schema is a list of elements in depth-first order. An element with ``num_children`` is followed by that many
children. A leaf's highest definition level is the number of optional or repeated elements on its path, itself included;
its highest repetition level is the number of repeated ones. A leaf's *encoding* follows from its physical type and its
annotation: ``logicalType`` if it is set, else the older ``converted_type``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.errors import DamagedFileError, UnsupportedFeatureError
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import Annotation, Leaf
from sidecar.parquet.thrift import Struct

PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")

MAX_NESTING = 256
"""Groups inside each other, at most."""

MAX_PATHS = 16 << 20
"""Characters of the paths of all leaves together, at most."""

MAX_TYPE_LENGTH = 999_999
"""Bytes of a FIXED_LEN_BYTE_ARRAY value, at most."""

# fmt: off
_CONVERTED = (
    "UTF8", "MAP", "MAP_KEY_VALUE", "LIST", "ENUM", "DECIMAL", "DATE", "TIME_MILLIS", "TIME_MICROS",
    "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS", "UINT_8", "UINT_16", "UINT_32", "UINT_64", "INT_8", "INT_16",
    "INT_32", "INT_64", "JSON", "BSON", "INTERVAL",
)
# fmt: on
_LOGICAL = {
    1: "STRING",
    4: "ENUM",
    5: "DECIMAL",
    6: "DATE",
    7: "TIME",
    8: "TIMESTAMP",
    10: "INTEGER",
    11: "UNKNOWN",
    12: "JSON",
    13: "BSON",
    14: "UUID",
    15: "FLOAT16",
    16: "VARIANT",
    17: "GEOMETRY",
    18: "GEOGRAPHY",
    19: "FILE",
}
_UNITS = {1: "ms", 2: "us", 3: "ns"}


def decode_leaves(elements: Sequence[Struct], *, normalized_interval: bool = False) -> list[Leaf]:
    """Decode the leaves below the root, in order.

    Raises :class:`DamagedFileError` if the elements do not make a tree, and :class:`UnsupportedFeatureError` if the
    paths are too long.
    """
    if not elements:
        raise DamagedFileError("the schema is empty")
    leaves: list[Leaf] = []
    total = 0
    groups: list[tuple[int, tuple[str, ...], int, int]] = [(_children(elements[0]), (), 0, 0)]
    for element in elements[1:]:
        while groups and groups[-1][0] == 0:
            groups.pop()
        if not groups:
            raise DamagedFileError("the schema has more elements than its groups have children")
        left, path, max_def, max_rep = groups[-1]  # children to come, path, levels
        groups[-1] = (left - 1, path, max_def, max_rep)
        repetition = _choice(element, 3, "repetition_type", 3) or 0
        path = (*path, _need_name(element))
        max_def, max_rep = max_def + (repetition > 0), max_rep + (repetition == 2)
        if element.integer(1) is None:
            if len(groups) >= MAX_NESTING:
                raise UnsupportedFeatureError("the schema is nested too deeply", expected=f"at most {MAX_NESTING}")
            groups.append((_children(element), path, max_def, max_rep))
        elif element.integer(5):  # Arrow takes it for a group
            raise DamagedFileError("a schema element has both a type and children", found=".".join(path)[:60])
        else:
            total += sum(map(len, path)) + len(path)
            if total > MAX_PATHS:
                raise UnsupportedFeatureError(
                    "the paths of the leaves are too long", expected=f"at most {MAX_PATHS} characters"
                )
            leaves.append(_leaf(element, len(leaves), path, (max_def, max_rep), normalized_interval))
    if any(left for left, *_ in groups):
        raise DamagedFileError("the schema ends before its groups are complete")
    return leaves


def _children(element: Struct) -> int:
    return element.count(5, "num_children") if 5 in element.fields else 0


def _need_name(element: Struct) -> str:
    name = element.text(4)
    if name is None:
        raise DamagedFileError("a schema element has no name")
    return name


def _choice(element: Struct, field_id: int, what: str, choices: int) -> int | None:
    value = element.integer(field_id)
    if value is not None and not 0 <= value < choices:
        raise DamagedFileError(f"{what} is unknown", expected=f"0 to {choices - 1}", found=value)
    return value


def _leaf(
    element: Struct, index: int, path: tuple[str, ...], levels: tuple[int, int], normalized_interval: bool
) -> Leaf:
    physical = PHYSICAL[_choice(element, 1, "the physical type", len(PHYSICAL)) or 0]
    length = None
    if physical == "FIXED_LEN_BYTE_ARRAY":
        length = element.count(2, "type_length")
        if not 1 <= length <= MAX_TYPE_LENGTH:
            raise DamagedFileError("type_length is out of range", expected=f"1 to {MAX_TYPE_LENGTH}", found=length)
    annotation = _annotation(element)
    encoding = Encoding.parse(_encoding_name(physical, length, annotation))
    marked = normalized_interval and encoding.name == "interval"
    field_id = element.integer(9)
    return Leaf(
        index,
        path,
        field_id if field_id is not None and field_id >= 0 else None,
        physical,
        length,
        annotation,
        encoding,
        levels[0],
        levels[1],
        marked,
    )


def _annotation(element: Struct) -> Annotation:
    logical = element.struct(10)
    if logical is not None and logical.fields:
        return _logical_annotation(logical)
    converted = element.integer(6)
    if converted is None or not 0 <= converted < len(_CONVERTED):
        return Annotation()
    name = _CONVERTED[converted]
    if name == "UTF8":
        return Annotation("STRING")
    if name == "DECIMAL":
        return Annotation(name, scale=element.integer(7) or 0, precision=element.integer(8) or 0)
    if name.startswith(("INT_", "UINT_")):
        return Annotation("INTEGER", signed=name[0] == "I", bits=int(name.partition("_")[2]))
    if name.startswith("TIME"):
        kind, _, unit = name.partition("_")
        return Annotation(kind, unit={"MILLIS": "ms", "MICROS": "us"}[unit], utc=True)
    return Annotation(name)


def _logical_annotation(logical: Struct) -> Annotation:
    field_id = next(iter(logical.fields))
    kind = _LOGICAL.get(field_id, "UNRECOGNIZED")
    body = logical.struct(field_id)
    if body is None:
        return Annotation(kind)
    if kind == "DECIMAL":
        return Annotation(kind, scale=body.integer(1) or 0, precision=body.integer(2) or 0)
    if kind in ("TIME", "TIMESTAMP"):
        unit = body.struct(2)
        name = _UNITS.get(next(iter(unit.fields), 0), "") if unit is not None else ""
        return Annotation(kind, unit=name, utc=bool(body.boolean(1)))
    if kind == "INTEGER":
        signed = body.boolean(2)
        return Annotation(kind, signed=signed is not False, bits=body.integer(1) or 0)
    return Annotation(kind)


def _encoding_name(physical: str, length: int | None, annotation: Annotation) -> str:
    """Return the encoding's name in the registry. An annotation that does not fit the physical type is ignored."""
    kind = annotation.kind
    if physical in ("INT32", "INT64"):
        return _integer_encoding(physical, annotation)
    if physical == "BYTE_ARRAY":
        return f"byte_array/decimal:{_scale(annotation)}" if kind == "DECIMAL" else "byte_array"
    if physical == "FIXED_LEN_BYTE_ARRAY":
        if kind == "DECIMAL":
            return f"flba:{length}/decimal:{_scale(annotation)}"
        special = {("FLOAT16", 2): "float16", ("INTERVAL", 12): "interval"}
        return special.get((kind, length or 0), f"flba:{length}")
    return physical.lower()


def _integer_encoding(physical: str, annotation: Annotation) -> str:
    name, kind, unit = physical.lower(), annotation.kind, annotation.unit
    if kind == "DECIMAL":
        return f"{name}/decimal:{_scale(annotation)}"
    if kind == "INTEGER" and not annotation.signed:
        return f"u{name}"
    if kind == "DATE" and physical == "INT32":
        return "int32/date"
    if kind == "TIME" and unit in (("ms",) if physical == "INT32" else ("us", "ns")):
        return f"{name}/time-{unit}"
    if kind == "TIMESTAMP" and physical == "INT64" and unit:
        return f"int64/timestamp-{unit}"
    return name


def _scale(annotation: Annotation) -> int:
    if not 0 <= annotation.scale <= 999:
        raise DamagedFileError("the scale of a decimal is out of range", found=annotation.scale)
    return annotation.scale


def is_wide_decimal(leaf: Leaf) -> bool:
    """Return whether values of a leaf may be decimals in more bytes than pyarrow takes for their precision."""
    if leaf.annotation.kind != "DECIMAL" or leaf.physical not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return False
    return leaf.type_length is None or leaf.type_length > (16 if leaf.annotation.precision <= 38 else 32)
