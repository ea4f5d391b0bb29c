"""Values at the ends of types, and the partition values that Iceberg's Java library computes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

FILE = Path(__file__).resolve().parents[1] / "data" / "iceberg" / "partition_values.json"

INTS = [-(2**31), -(2**31) + 1, -(2**31) + 9, -11, -1, 0, 7, 2**31 - 1]
LONGS = [-(2**63), -(2**63) + 1, -(2**31), -1, 0, 7, 2**63 - 1]
DATES = [-(2**31), -719_529, -719_162, -366, -365, -1, 0, 31, 2_932_896, 2_932_897, 2**31 - 1]
HOUR, YEAR_10_000 = 3_600, 253_402_300_800
SECONDS = [-(2**31) * HOUR, -62_135_596_800, -366 * 24 * HOUR, -HOUR, 0, HOUR, YEAR_10_000, 2**31 * HOUR]
MICROS = [-(2**63), *(one * 10**6 + more for one in SECONDS for more in (-1, 0)), 2**63 - 1]
NANOS = [-(2**63), *(one * 10**9 + more for one in SECONDS[2:6] for more in (-1, 0)), -999, -1001, 2**63 - 1]
DECIMALS = ["-9999999.99", "-0.01", "0.00", "1.27", "-1.28", "9999999.99"]
TEXTS = ["", "a", "abc", "abcd", "äöüß", "😀😀😀😀", "a\U0010ffff\U0010ffffb"]
WIDE = 2**31 - 1
CASES: dict[str, tuple[list[str], list[Any]]] = {
    "int": ([f"truncate[{width}]" for width in (1, 3, 10, 16, 1000, 2**30, WIDE)] + ["bucket[16]"], INTS),
    "long": ([f"truncate[{width}]" for width in (1, 3, 10, 16, 1000, WIDE)] + ["bucket[16]"], LONGS),
    "date": (["year", "month", "day", "bucket[16]"], DATES),
    "timestamp": (["year", "month", "day", "hour", "bucket[16]"], MICROS),
    "timestamptz": (["year", "hour", "bucket[16]"], MICROS[::2]),
    "timestamp_ns": (["year", "month", "day", "hour", "bucket[16]"], NANOS),
    "time": (["bucket[16]"], [0, 1, 86_399_999_999]),
    "decimal(9, 2)": (["truncate[1]", "truncate[10]", "truncate[50]", "bucket[16]"], DECIMALS),
    "decimal(38, 0)": (["truncate[10]", "bucket[16]"], ["-" + "9" * 38, "-1", "128", "9" * 38]),
    "string": (["truncate[1]", "truncate[3]", "bucket[16]"], TEXTS),
    "binary": (["truncate[1]", "truncate[3]", "bucket[16]"], ["", "00", "ff", "ffffff", "ffffff00", "61626364"]),
    "fixed[2]": (["bucket[16]"], ["0000", "ffff"]),
    "uuid": (["bucket[16]"], [str(UUID(int=0)), str(UUID(int=2**128 - 1)), "f79c3e09-677c-4bbd-a479-3f349cb785e7"]),
}  # fmt: skip
"""By type, transforms and values: whole numbers as they are stored, decimals as texts, bytes in hexadecimal."""


class JavaPartition(NamedTuple):
    """The partition value of one value, both as in :data:`CASES`."""

    type: str
    transform: str
    value: Any
    partition: Any


def partitions_of_java() -> list[JavaPartition]:
    """What ``partition_values.json`` has, written by :func:`computed_by_java` with Iceberg 1.12.0."""
    return [JavaPartition(*line) for line in json.loads(FILE.read_text("utf-8"))]


def computed_by_java(jvm: Any) -> Iterator[JavaPartition]:
    """Compute the partition values with the library in a JVM."""
    api = jvm.org.apache.iceberg
    for kind, (transforms, values) in CASES.items():
        java_type = api.types.Types.fromTypeName(kind)
        parse = _parser(jvm, kind)
        for transform in transforms:
            bound = api.transforms.Transforms.fromString(java_type, transform).bind(java_type)
            for value in values:
                given = bytes.fromhex(value) if kind in ("binary", "fixed[2]") else str(value)
                held = jvm.java.util.Optional.of(
                    jvm.java.nio.ByteBuffer.wrap(given) if parse is None and kind != "string" else given
                )
                partition = (held if parse is None else held.map(parse)).map(bound).get()
                yield JavaPartition(kind, transform, value, _plain(jvm, partition))


def _parser(jvm: Any, kind: str) -> Any:
    """Return a java.util.function.Function from texts: py4j makes an Integer of each small Long."""
    name, method = {
        "int": ("java.lang.Integer", "valueOf"),
        "date": ("java.lang.Integer", "valueOf"),
        "uuid": ("java.util.UUID", "fromString"),
    }.get(kind, ("java.lang.Long", "valueOf"))
    if kind in ("string", "binary", "fixed[2]"):
        return None
    handles, types, of = (
        jvm.java.lang.invoke.MethodHandles,
        jvm.java.lang.invoke.MethodType,
        jvm.java.lang.Class.forName,
    )
    lookup, text, anything = handles.publicLookup(), of("java.lang.String"), of("java.lang.Object")
    if kind.startswith("decimal"):
        handle = lookup.findConstructor(of("java.math.BigDecimal"), types.methodType(jvm.java.lang.Void.TYPE, text))
    else:
        handle = lookup.findStatic(of(name), method, types.methodType(of(name), text))
    general = handle.asType(types.methodType(anything, anything))
    return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(of("java.util.function.Function"), general)


def _plain(jvm: Any, partition: Any) -> Any:
    if isinstance(partition, Decimal):
        return format(partition, "f")
    if isinstance(partition, int | str):
        return partition
    return bytes(jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(partition)).hex()
