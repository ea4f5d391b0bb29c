"""Trust in ORC filters: one case a rule, with its neighbour that the rule must leave alone."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

from sidecar.orc.schema import KINDS, OrcColumn
from sidecar.orc.stripe import ColumnEncoding
from sidecar.orc.tail import CPP, CUDF, GO, JAVA, PRESTO, TRINO, OrcTail, read_tail
from sidecar.orc.trust import LEGACY, UTF8, encoding_of
from sidecar.storage.source import BytesSource

UNSTABLE = (1, 9999)
COMPOUND = {"LIST", "MAP", "STRUCT", "UNION"}
CHARSET = "charset or time zone"


def a_tail() -> OrcTail:
    sink = io.BytesIO()
    pyarrow.orc.write_table(pa.table({"a": [1]}), sink)
    return read_tail(BytesSource(sink.getvalue()))


TAIL = a_tail()


def a_column(kind: str, **parts: Any) -> OrcColumn:
    known: dict[str, Any] = {
        "id": 1,
        "path": "a",
        "kind": kind,
        "field_id": 1,
        "precision": 10 if kind == "DECIMAL" else None,
        "scale": 2 if kind == "DECIMAL" else None,
        "max_length": 8 if kind in ("CHAR", "VARCHAR") else None,
        "parent": 0,
        "children": (),
        "nested_in_repeated": False,
        "nullable_parent": False,
        "encrypted": False,
    }
    return OrcColumn(**{**known, **parts})


def ask(
    kind: str,
    *,
    writer: int = JAVA,
    version: int = 9,
    software: str | None = "2.2.2",
    stream: str = UTF8,
    bloom: int | None = 1,
    zone: str | None = "GMT",
    file_version: tuple[int, int] = (0, 12),
    **parts: Any,
) -> tuple[str | None, str]:
    """(name of the encoding, reason), once it is sure that a reason stands for no trust."""
    tail = replace(TAIL, writer=writer, writer_version=version, software_version=software, file_version=file_version)
    encoding, trusted, reason = encoding_of(
        tail, a_column(kind, **parts), ColumnEncoding("DIRECT_V2", 0, bloom), stream, zone
    )
    assert trusted == (not reason)
    assert encoding is not None or reason
    return encoding and encoding.name, reason


GOOD = [
    ("BYTE", "orc/long"),
    ("SHORT", "orc/long"),
    ("INT", "orc/long"),
    ("LONG", "orc/long"),
    ("FLOAT", "orc/float"),
    ("DOUBLE", "orc/double"),
    ("STRING", "orc/bytes"),
    ("BINARY", "orc/bytes"),
    ("CHAR", "orc/char:8"),
    ("VARCHAR", "orc/varchar:8"),
    ("DATE", "orc/date"),
    ("DECIMAL", "orc/decimal:2"),
    ("TIMESTAMP", "orc/timestamp:java:UTC"),
    ("TIMESTAMP_INSTANT", "orc/instant:java"),
]


@pytest.mark.parametrize(("kind", "name"), GOOD)
def test_filters_of_java_are_trusted(kind: str, name: str) -> None:
    assert ask(kind) == (name, "")


@pytest.mark.parametrize(("kind", "name"), GOOD)
def test_filters_of_cpp_are_trusted_but_for_three_types(kind: str, name: str) -> None:
    found, reason = ask(kind, writer=CPP, version=6)
    assert found == name.replace("java", "c++")
    assert bool(reason) == (kind in ("BYTE", "CHAR", "FLOAT"))


def test_the_table_covers_every_kind() -> None:
    assert {kind for kind, _ in GOOD} | COMPOUND | {"BOOLEAN", "GEOMETRY", "GEOGRAPHY"} == set(KINDS)


@pytest.mark.parametrize("kind", [*sorted(COMPOUND), "BOOLEAN", "GEOMETRY", "GEOGRAPHY", "77"])
@pytest.mark.parametrize("stream", [UTF8, LEGACY])
def test_kinds_without_values_are_never_asked(kind: str, stream: str) -> None:
    name, reason = ask(kind, stream=stream)
    assert name is None
    assert reason


# --- C++ --------------------------------------------------------------------------------------------------

BAD_VERSIONS = [
    "1.6.0",
    "1.6.11",
    "1.6.11-SNAPSHOT",
    "1.7.0",
    "1.7.0-rc1",
    "1.5.9",
    "",
    None,
    "main",
    "2.2",
    "2.2.2x",
]


@pytest.mark.parametrize("software", BAD_VERSIONS)
@pytest.mark.parametrize("kind", ["INT", "STRING", "DATE"])
def test_cpp_writers_with_wrong_shifts_lose_all_filters(software: str | None, kind: str) -> None:
    assert "ORC-1024" in ask(kind, writer=CPP, software=software)[1]


@pytest.mark.parametrize("software", ["1.6.12", "1.6.14", "1.7.1", "1.8.0", "2.0.0-SNAPSHOT", "10.0.0"])
@pytest.mark.parametrize("kind", ["INT", "STRING", "DATE", "DOUBLE", "VARCHAR"])
def test_later_cpp_writers_keep_them(software: str, kind: str) -> None:
    assert ask(kind, writer=CPP, software=software)[1] == ""


@pytest.mark.parametrize("software", BAD_VERSIONS)
def test_versions_of_cpp_say_nothing_of_java(software: str | None) -> None:
    assert ask("INT", software=software)[1] == ""


@pytest.mark.parametrize("kind", ["BINARY", "DECIMAL", "TIMESTAMP", "TIMESTAMP_INSTANT"])
def test_other_keys_of_cpp_1_6(kind: str) -> None:
    assert "1.6" in ask(kind, writer=CPP, software="1.6.14")[1]
    assert ask(kind, writer=CPP, software="1.7.1")[1] == ""


@pytest.mark.parametrize(
    ("software", "trusted"), [("1.7.1", False), ("1.7.4", False), ("1.7.5", True), ("1.8.0", True)]
)
def test_zones_of_cpp_before_1_7_5(software: str, trusted: bool) -> None:
    name, reason = ask("TIMESTAMP", writer=CPP, software=software, zone="Asia/Tokyo")
    assert name == "orc/timestamp:c++:Asia/Tokyo"
    assert ("ORC-1151" in reason) == (not trusted)
    assert ask("TIMESTAMP", writer=CPP, software=software, zone="GMT") == ("orc/timestamp:c++:UTC", "")


@pytest.mark.parametrize("kind", ["BYTE", "CHAR", "FLOAT"])
@pytest.mark.parametrize("software", ["1.8.0", "2.2.2", "2.3.1", "9.0.0"])
def test_corrupt_filters_of_cpp_are_corrupt_up_to_today(kind: str, software: str) -> None:
    assert "C++" in ask(kind, writer=CPP, software=software)[1]
    assert ask(kind, writer=JAVA, software=software)[1] == ""


# --- Java -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_INSTANT", "DECIMAL"])
def test_java_before_orc_135(kind: str) -> None:
    assert "ORC-135" in ask(kind, version=5)[1]
    assert ask(kind, version=7)[1] == ""
    assert ask(kind, writer=CPP, version=5)[1] == ""


@pytest.mark.parametrize(("version", "precision", "trusted"), [(6, 18, False), (6, 19, True), (7, 18, True)])
def test_short_decimals_of_java_before_orc_517(version: int, precision: int, trusted: bool) -> None:
    assert ask("DECIMAL", version=version, precision=precision)[1] == (
        "" if trusted else "no reader probes filters of decimals of up to 18 digits from before ORC-517"
    )
    assert ask("DECIMAL", writer=CPP, version=version, precision=precision)[1] == ""


def test_timestamps_of_version_6_are_trusted() -> None:
    assert ask("TIMESTAMP", version=6)[1] == ""


# --- streams ----------------------------------------------------------------------------------------------

LEGACY_KINDS = {"BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "DATE", "BINARY", "STRING"}


@pytest.mark.parametrize(("kind", "name"), GOOD)
@pytest.mark.parametrize("version", [1, 4, 9])
def test_legacy_streams_are_trusted_for_what_no_charset_or_zone_decides(kind: str, name: str, version: int) -> None:
    found, reason = ask(kind, stream=LEGACY, bloom=None, version=version)
    assert (reason == "") == (kind in LEGACY_KINDS)
    if kind == "STRING":
        assert found == "orc/ascii"
    elif kind in ("CHAR", "VARCHAR", "TIMESTAMP"):
        assert found is None
    else:
        assert found == name
    if version == 9 and reason:
        assert CHARSET in reason


def test_legacy_streams_of_other_writers_do_not_exist() -> None:
    assert "Java" in ask("INT", writer=CPP, stream=LEGACY)[1]
    assert "Java" in ask("INT", writer=TRINO, stream=LEGACY)[1]


def test_streams_that_are_no_filters() -> None:
    assert "not a filter stream" in ask("INT", stream="ROW_INDEX")[1]


@pytest.mark.parametrize("kind", [kind for kind, _ in GOOD])
@pytest.mark.parametrize("bloom", [None, 0])
def test_without_bloom_encoding_timestamps_alone_are_lost(kind: str, bloom: int | None) -> None:
    assert ("bloomEncoding" in ask(kind, bloom=bloom)[1]) == kind.startswith("TIMESTAMP")


@pytest.mark.parametrize("kind", [kind for kind, _ in GOOD])
@pytest.mark.parametrize("bloom", [2, 3, 2**40])
def test_bloom_encodings_of_the_future(kind: str, bloom: int) -> None:
    assert "bloomEncoding" in ask(kind, bloom=bloom)[1]


# --- time zones -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "GMT", "Etc/UTC", "Etc/GMT", "Zulu", "Etc/Zulu", "Universal", "UCT", "GMT0"])
def test_names_of_utc(zone: str) -> None:
    assert ask("TIMESTAMP", zone=zone) == ("orc/timestamp:java:UTC", "")


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Etc/GMT+5", "GMT+08:00", "US/Pacific"])
def test_other_zones_keep_their_names(zone: str) -> None:
    assert ask("TIMESTAMP", zone=zone) == (f"orc/timestamp:java:{zone}", "")
    assert ask("TIMESTAMP_INSTANT", zone=zone) == ("orc/instant:java", "")


@pytest.mark.parametrize("zone", [None, "", "a b", "x" * 65, "Zürich", "UTC\n"])
def test_timestamps_without_a_usable_zone(zone: str | None) -> None:
    name, reason = ask("TIMESTAMP", zone=zone)
    assert name is None
    assert reason
    assert ask("TIMESTAMP_INSTANT", zone=zone) == ("orc/instant:java", "")


# --- decimals and bounded text ----------------------------------------------------------------------------


def test_decimals_of_the_unstable_version() -> None:
    assert ask("DECIMAL", file_version=UNSTABLE) == ("orc/decimal64:2", "")
    assert ask("DECIMAL", file_version=UNSTABLE, precision=19) == ("orc/decimal:2", "")
    assert ask("DECIMAL", file_version=UNSTABLE, writer=CPP) == ("orc/decimal:2", "")
    assert ask("DECIMAL", file_version=UNSTABLE, stream=LEGACY)[0] is None


@pytest.mark.parametrize("parts", [{"precision": None}, {"scale": 39}])
def test_decimals_that_are_none(parts: dict[str, Any]) -> None:
    assert ask("DECIMAL", **parts)[0] is None


def test_a_scale_may_be_left_out() -> None:
    assert ask("DECIMAL", scale=None) == ("orc/decimal:0", "")


@pytest.mark.parametrize("kind", ["CHAR", "VARCHAR"])
@pytest.mark.parametrize("length", [None, 0, 2**31])
def test_bounded_text_without_a_bound(kind: str, length: int | None) -> None:
    assert ask(kind, max_length=length)[0] is None


# --- columns and writers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), GOOD)
def test_columns_that_are_never_asked(kind: str, name: str) -> None:
    assert "encrypted" in ask(kind, encrypted=True)[1]
    assert "list or map" in ask(kind, nested_in_repeated=True)[1]
    assert ask(kind, nullable_parent=True) == (name, "")


@pytest.mark.parametrize("writer", [PRESTO, TRINO])
def test_presto_and_trino_are_trusted_where_there_is_one_way_to_hash(writer: int) -> None:
    trusted = {kind for kind, _ in GOOD if not ask(kind, writer=writer, version=6, software=None)[1]}
    assert trusted == {"SHORT", "INT", "LONG", "DATE", "STRING", "VARCHAR"}


@pytest.mark.parametrize("writer", [GO, CUDF, 6, 99, 2**40])
@pytest.mark.parametrize("kind", [kind for kind, _ in GOOD])
def test_other_writers_are_never_asked(writer: int, kind: str) -> None:
    assert "are not compared with those of others" in ask(kind, writer=writer)[1]
