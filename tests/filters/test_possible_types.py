"""A value asked without its column's type is asked at least as it would be with the type."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pytest

from sidecar.filters.column_types import named_types
from sidecar.filters.encoding import Encoding
from sidecar.filters.literals import LiteralValue, literal_from_text
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.possible_types import possible_types, probe_as_any, readings_of
from sidecar.filters.probes import AnyEncoding, probe_for

ID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
TEXTS = {
    "int": ["5", "-7", "2147483647"],
    "long": ["5", "-7", str(1 << 40)],
    "float": ["0.5", "0.1", "-0.0", "1e39", "nan"],
    "double": ["0.5", "0.1", "-0.0", "nan"],
    "date": ["2024-01-31", "1500-01-01"],
    "time": ["12:34", "12:34:56.123456"],
    "timestamp": ["2024-01-31 12:34:56.5", "1969-12-31"],
    "timestamptz": ["2024-01-31 12:34:56.5Z"],
    "timestamp_ns": ["2024-01-31 12:34:56.123456789"],
    "timestamptz_ns": ["2024-01-31 12:34:56.123456789Z"],
    "string": ["abc", "0x41", "", "värde", "5", str(ID)],
    "binary": ["0x41", "0x", "0x" + ID.hex],
    "uuid": [str(ID)],
    "fixed[16]": ["0x" + ID.hex],
    "fixed[3]": ["0x010203"],
    "decimal(9, 2)": ["1.5", "-0.01", "0"],
    "decimal(38, 2)": ["1.5", "99999999999999999999.99"],
}
ENCODINGS: list[AnyEncoding] = [
    *(Encoding.parse(name) for name in (
        "int32", "int64", "float", "double", "int32/date", "int32/time-ms", "int64/time-us", "int64/timestamp-ms",
        "int64/timestamp-us", "int64/timestamp-ns", "byte_array", "flba:16", "flba:3", "int32/decimal:2",
        "int64/decimal:2", "flba:16/decimal:2",
        "byte_array/decimal:2", "uint32", "uint64", "int96", "boolean", "float16",
    )),
    *(OrcEncoding.parse(f"orc/{name}") for name in (
        "long", "date", "double", "float", "bytes", "ascii", "char:5", "varchar:5", "decimal:2", "decimal64:2",
        "instant:java", "instant:c++", "timestamp:java:UTC", "timestamp:c++:Europe/Berlin",
    )),
]  # fmt: skip


def exact(text: str, name: str) -> LiteralValue:
    return literal_from_text(text, name, quoted=True)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_no_reading_of_a_value_is_left_out(encoding: AnyEncoding) -> None:
    """If a filter may hold the value of a column of any type, it is not excluded without the type."""
    for name, texts in TEXTS.items():
        for text in texts:
            value = exact(text, name)
            known = probe_for(value, name, encoding)
            for asked in (text, value):
                if asked == value and isinstance(value, str) and name != "string":
                    continue
                found = probe_as_any(asked, encoding)
                if known.verdict == "probe":
                    assert found.verdict == "unknown" or set(known.hashes) <= set(found.hashes), (name, text)
                elif known.verdict == "unknown" and name in possible_types(encoding):
                    assert found.verdict == "unknown", (name, text)


@pytest.mark.parametrize("kind", named_types(), ids=str)
def test_every_type_is_possible_where_its_values_are_stored(kind: Any) -> None:
    for name in kind.stored_as:
        width = ":16" if name == "flba" else ""
        found = possible_types(Encoding.parse(name + width))
        assert kind.base in found or (kind.base == "binary" and name != "byte_array"), name


def test_a_given_type_is_the_only_reading() -> None:
    encoding = Encoding.parse("byte_array")
    assert [name for name, _ in readings_of("0x41", encoding)] == ["string", "binary"]
    assert readings_of("0x41", encoding, "binary") == [("binary", b"A")]
    assert readings_of("many", encoding, "long") == []
    assert probe_as_any("many", encoding, "long").verdict == "unknown"


def test_values_of_python_are_read_by_their_type() -> None:
    assert readings_of(True, Encoding.parse("int64")) == []
    assert readings_of(5, Encoding.parse("int64")) == [("long", 5)]
    assert readings_of(b"a", Encoding.parse("byte_array")) == [("binary", b"a")]
    assert readings_of(Decimal("1.50"), Encoding.parse("int32/decimal:2")) == [("decimal(38, 2)", Decimal("1.50"))]
    assert readings_of(5, Encoding.parse("byte_array")) == []


def test_a_float_that_engines_round_is_unknown() -> None:
    assert probe_as_any("0.1", Encoding.parse("float")).verdict == "unknown"
    assert probe_as_any(0.1, Encoding.parse("float")).verdict == "unknown"


def test_a_filter_of_an_encoding_without_rules_is_unknown() -> None:
    found = probe_as_any("5", Encoding.parse("int96"))
    assert (found.verdict, found.reason) == ("unknown", "no certain rule for values in int96")


@pytest.mark.parametrize("text", ["00ff", "00FF", r"\x00ff", "X'00ff'", "x'00FF'", " 00ff "])
@pytest.mark.parametrize("name", ["byte_array", "flba:2", "orc/bytes"])
def test_other_spellings_of_bytes_are_not_excluded(name: str, text: str) -> None:
    encoding = OrcEncoding.parse(name) if name.startswith("orc") else Encoding.parse(name)
    kind = "fixed[2]" if name == "flba:2" else "binary"
    asked = probe_as_any(text, encoding)
    wanted = probe_for(b"\x00\xff", kind, encoding)
    assert asked.verdict == "unknown" or set(wanted.hashes) <= set(asked.hashes)
    assert readings_of(text, encoding, "string" if name != "flba:2" else "fixed[3]") in (
        [],
        [("string", text)],
    )
