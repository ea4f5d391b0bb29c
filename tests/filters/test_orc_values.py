"""The table of value, key and hash of ORC filters: each pair, each rule, each writer, and never a false negative."""

from __future__ import annotations

import math
import struct
import uuid
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.errors import UnsupportedFeatureError
from sidecar.filters.orc.array_hash import hash_orc
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.key_hash import hash_bytes, hash_long
from sidecar.filters.orc.values import GREGORIAN_DAY, decimal_text, probe_orc

UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
DAY_US = 86_400_000_000
HOUR_MS = 3_600_000
LA = "orc/timestamp:java:America/Los_Angeles"
Y2000 = 946_684_800_000_000


def bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


ENCODINGS = [
    "orc/long",
    "orc/date",
    "orc/float",
    "orc/double",
    "orc/bytes",
    "orc/ascii",
    "orc/char:8",
    "orc/varchar:10",
    "orc/decimal:2",
    "orc/decimal64:2",
    "orc/instant:java",
    "orc/instant:c++",
    "orc/timestamp:java:UTC",
    "orc/timestamp:c++:UTC",
    LA,
    "orc/timestamp:java:GMT+08:00",
    "orc/timestamp:c++:Etc/GMT-3",
]

PROBES: list[tuple[str, str, Any, list[int | bytes]]] = [
    # column type, encoding, literal, every key by which an equal value can have been hashed
    ("int", "orc/long", -5, [-5, 65531]),  # old Hive stored a SHORT as 16 unsigned bits
    ("long", "orc/long", -(2**63), [-(2**63)]),
    ("long", "orc/long", 2**63 - 1, [2**63 - 1]),
    ("int", "orc/long", 2**31, [2**31]),  # what an int column cannot hold hashes as it is
    ("time", "orc/long", 86_399_999_999, [86_399_999_999]),
    ("date", "orc/date", -1, [-1]),
    ("date", "orc/date", GREGORIAN_DAY, [GREGORIAN_DAY]),
    ("float", "orc/float", 1.5, [bits(1.5)]),
    ("float", "orc/float", 0.0, [0, bits(-0.0)]),
    ("float", "orc/float", -math.inf, [bits(-math.inf)]),
    ("double", "orc/float", 1.5, [bits(1.5)]),
    ("double", "orc/double", 0.1, [bits(0.1)]),
    ("double", "orc/double", -0.0, [0, bits(-0.0)]),
    ("double", "orc/double", 5, [bits(5.0)]),
    ("string", "orc/bytes", "Łódź", ["Łódź".encode()]),
    ("string", "orc/bytes", "", [b""]),
    ("string", "orc/ascii", "abc", [b"abc"]),
    ("string", "orc/char:8", "ab", [b"ab      "]),
    ("string", "orc/char:8", "ab  ", [b"ab      "]),
    ("string", "orc/char:8", "", [b" " * 8]),
    ("string", "orc/char:3", "日本", "日本 ".encode()),
    ("string", "orc/char:3", "𝄞𝄞𝄞", "𝄞𝄞𝄞".encode()),
    ("string", "orc/varchar:3", "日本", "日本".encode()),
    ("string", "orc/varchar:3", "𝄞𝄞𝄞", "𝄞𝄞𝄞".encode()),
    ("string", "orc/varchar:3", "a ", b"a "),
    ("binary", "orc/bytes", b"\x00\xff", [b"\x00\xff"]),
    ("fixed[2]", "orc/bytes", b"ab", [b"ab"]),
    ("uuid", "orc/bytes", UUID, [UUID.bytes]),
    ("uuid", "orc/bytes", UUID.bytes, [UUID.bytes]),
    ("decimal(9, 2)", "orc/decimal:2", Decimal("1.50"), [b"1.5"]),
    ("decimal(9, 2)", "orc/decimal:2", Decimal("1.5000"), [b"1.5"]),
    ("decimal(9, 2)", "orc/decimal:2", Decimal("1E2"), [b"100"]),
    ("decimal(9, 2)", "orc/decimal:2", Decimal("-0.00"), [b"0"]),
    ("decimal(9, 2)", "orc/decimal:2", Decimal("-0.01"), [b"-0.01"]),
    ("decimal(38, 0)", "orc/decimal:0", Decimal("9" * 38), [b"9" * 38]),
    ("decimal(38, 38)", "orc/decimal:38", Decimal("1E-38"), [b"0." + b"0" * 37 + b"1"]),
    ("decimal(9, 2)", "orc/decimal64:2", Decimal("-1.5"), [-150]),
    ("timestamp", "orc/timestamp:java:UTC", 1_999_999, [1_999]),
    ("timestamptz", "orc/instant:java", 1_999_999, [1_999]),
    ("timestamp", "orc/timestamp:java:UTC", -1, [-1]),
    ("timestamp", "orc/timestamp:java:UTC", -1_500_001, [-1_501]),
    ("timestamp_ns", "orc/timestamp:java:UTC", -1_500_000_001, [-1_501]),
    ("timestamptz_ns", "orc/instant:java", 1_999_999_999, [1_999]),
    # the mirror image of instants between -1 s and 0
    ("timestamp", "orc/timestamp:java:UTC", 500_000, [500, -500]),
    ("timestamptz", "orc/instant:c++", 500_900, [500, -500]),
    ("timestamp", "orc/timestamp:c++:UTC", 1_500_900, [1_500]),
    # rounded down, or toward zero; and as Java reads pyarrow's negative nanoseconds
    ("timestamp", "orc/timestamp:c++:UTC", -1_500_001, [-1_501, -1_500, -501, -500]),
    ("timestamptz_ns", "orc/instant:c++", -2_000_000_000, [-2_000, -1_000]),
    # nanoseconds that a column of microseconds hides, rounded down or toward zero
    ("timestamp", "orc/timestamp:java:UTC", -2_000_000, [-2_001, -2_000]),
    ("timestamptz", "orc/instant:c++", -2_000_000, [-2_001, -2_000, -1_999, -1_001, -1_000, -999]),
    ("timestamp", "orc/timestamp:java:UTC", 0, [-1, 0, -1_000]),
    # a zone's offsets differ by an hour at most
    ("timestamp", LA, Y2000, [Y2000 // 1000, Y2000 // 1000 - HOUR_MS, Y2000 // 1000 + HOUR_MS]),
    ("timestamp", "orc/timestamp:c++:Etc/GMT-3", Y2000 + 1, [Y2000 // 1000]),
    ("timestamp", LA, DAY_US, [DAY_US // 1000, DAY_US // 1000 - HOUR_MS, DAY_US // 1000 + HOUR_MS]),
]


def hashed(key: int | bytes) -> int:
    return hash_bytes(key) if isinstance(key, bytes) else hash_long(key)


@pytest.mark.parametrize(("column", "name", "value", "keys"), PROBES, ids=str)
def test_certain_pairs_probe_every_equal_key(column: str, name: str, value: Any, keys: Any) -> None:
    probe = probe_orc(value, column, OrcEncoding.parse(name))
    assert (probe.verdict, probe.reason) == ("probe", "")
    assert set(probe.hashes) == set(map(hashed, [keys] if isinstance(keys, bytes) else keys))
    assert len(probe.hashes) == len(set(probe.hashes))


UNKNOWN = [
    ("float", "orc/float", math.nan),
    ("double", "orc/double", math.nan),
    ("float", "orc/float", 0.1),
    ("double", "orc/float", 0.1),
    ("float", "orc/float", 1e300),
    ("double", "orc/double", 2**53 + 1),
    ("int", "orc/long", True),
    ("long", "orc/long", 1.0),
    ("long", "orc/long", "1"),
    ("date", "orc/date", GREGORIAN_DAY - 1),
    ("timestamp", "orc/timestamp:java:UTC", GREGORIAN_DAY * DAY_US - 1),
    ("timestamptz", "orc/instant:c++", GREGORIAN_DAY * DAY_US - 1),
    ("timestamp", LA, DAY_US - 1),
    ("timestamp", LA, -Y2000),
    ("timestamp", "orc/timestamp:java:No/Such_Zone", Y2000),
    ("timestamp", "orc/timestamp:java:GMT+08:00", Y2000),
    ("timestamp", "orc/timestamp:java:/etc/passwd", Y2000),
    ("string", "orc/ascii", "é"),
    ("string", "orc/bytes", "\ud800"),
    ("string", "orc/bytes", b"a"),
    ("string", "orc/char:8", "123456789"),
    ("string", "orc/varchar:10", "12345678901"),
    ("binary", "orc/bytes", "a"),
    ("fixed[3]", "orc/bytes", b"ab"),
    ("uuid", "orc/bytes", b"ab"),
    ("decimal(9, 2)", "orc/decimal:3", Decimal("1.50")),
    ("decimal(9, 2)", "orc/decimal:2", Decimal("1.505")),
    ("decimal(9, 2)", "orc/decimal:2", Decimal("NaN")),
    ("decimal(9, 2)", "orc/decimal64:3", Decimal("1.50")),
    ("decimal(9, 2)", "orc/decimal:2", 1.5),
    # pairs that are no pairs: the literal's own type would decide the hash
    ("int", "orc/date", 1),
    ("date", "orc/long", 1),
    ("int", "orc/double", 1),
    ("double", "orc/long", 1.0),
    ("float", "orc/double", 1.5),
    ("decimal(9, 2)", "orc/long", Decimal(7)),
    ("decimal(9, 2)", "orc/bytes", Decimal("1.5")),
    ("timestamp", "orc/instant:java", 1),
    ("timestamptz", "orc/timestamp:java:UTC", 1),
    ("timestamp", "orc/long", 1),
    ("timestamp", "orc/date", 1),
    ("binary", "orc/char:8", b"a"),
    ("string", "orc/decimal:2", "1.5"),
    ("boolean", "orc/long", True),
    ("unknown", "orc/long", 1),
    ("struct<a: int>", "orc/long", 1),
]


@pytest.mark.parametrize(("column", "name", "value"), UNKNOWN, ids=str)
def test_what_is_not_certain_is_unknown(column: str, name: str, value: Any) -> None:
    probe = probe_orc(value, column, OrcEncoding.parse(name))
    assert (probe.verdict, probe.hashes) == ("unknown", ())
    assert probe.reason


@pytest.mark.parametrize(
    ("column", "name", "value"),
    [
        ("long", "orc/long", 2**63),
        ("decimal(38, 2)", "orc/decimal64:2", Decimal(10**20)),
        ("timestamptz", "orc/instant:java", 2**63),
    ],
)
def test_no_word_of_the_file_holds_what_is_too_large(column: str, name: str, value: Any) -> None:
    assert probe_orc(value, column, OrcEncoding.parse(name)).verdict == "cannot-exist"


def test_differences_of_offsets_need_not_be_hours() -> None:
    """Monrovia was 44 min 30 s behind until 1972; Lord Howe moves by half an hour."""
    at = Y2000 // 1000
    probe = probe_orc(Y2000, "timestamp", OrcEncoding.parse("orc/timestamp:java:Africa/Monrovia"))
    assert set(probe.hashes) == {hash_long(at + d * 1000) for d in (0, 2670, -2670)}
    probe = probe_orc(Y2000, "timestamp", OrcEncoding.parse("orc/timestamp:c++:Australia/Lord_Howe"))
    assert {hash_long(at), hash_long(at + 1_800_000), hash_long(at - 1_800_000)} <= set(probe.hashes)


@pytest.mark.parametrize("name", ENCODINGS)
def test_names_go_round(name: str) -> None:
    encoding = OrcEncoding.parse(name)
    assert (encoding.name, str(encoding)) == (name, name)
    assert name.startswith(f"orc/{encoding.family}")
    assert (encoding.not_indexable is not None) == (name == "orc/ascii")


def test_parts_of_names() -> None:
    parse = OrcEncoding.parse
    assert parse("orc/char:8").length == 8
    assert (parse("orc/decimal:38").scale, parse("orc/decimal64:0").scale) == (38, 0)
    assert (parse("orc/instant:c++").writer, parse("orc/instant:c++").zone) == ("c++", None)
    assert (parse(LA).writer, parse(LA).zone) == ("java", "America/Los_Angeles")
    assert parse(LA) == parse(LA) != parse("orc/timestamp:java:UTC")


@pytest.mark.parametrize(
    "name",
    [
        *("", "orc/", "long", "int64", "orc/int", "orc/char", "orc/char:0", "orc/char:-1", "orc/varchar:08"),
        *("orc/decimal", "orc/decimal:39", "orc/decimal:02", "orc/decimal64:", "orc/long:1", "orc/bytes "),
        *(
            "orc/instant",
            "orc/instant:go",
            "orc/instant:java:UTC",
            "orc/timestamp:java",
            "orc/timestamp:java:",
        ),
        *(
            "orc/timestamp:java:a b",
            "orc/timestamp:java:" + "x" * 65,
            "ORC/long",
            "orc/long\n",
            "orc/char:8\n",
        ),
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError):
        OrcEncoding.parse(name)


@settings(max_examples=300, deadline=None)
@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimal_text_is_the_number_without_exponent_or_zeros(unscaled: int, scale: int) -> None:
    text = decimal_text(unscaled, scale).decode()
    with localcontext() as context:
        context.prec = 80
        assert Decimal(text) == Decimal(unscaled).scaleb(-scale)
    whole, point, fraction = text.removeprefix("-").partition(".")
    assert whole.isdigit()
    assert whole == "0" or whole[0] != "0"
    assert bool(point) == bool(fraction)
    assert not fraction.endswith("0")
    assert text != "-0"


# --- what is hashed is found ------------------------------------------------------------------------------

MIN_US = GREGORIAN_DAY * DAY_US
AXIS: list[tuple[str, str, Any, Any]] = [
    ("int", "orc/long", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    ("long", "orc/long", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    ("long", "orc/long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    ("int", "orc/long", pa.int8(), st.integers(-128, 127)),
    ("date", "orc/date", pa.date32(), st.integers(GREGORIAN_DAY, 2**31 - 1)),
    ("float", "orc/float", pa.float32(), st.floats(width=32, allow_nan=False)),
    ("double", "orc/float", pa.float32(), st.floats(width=32, allow_nan=False)),
    ("double", "orc/double", pa.float64(), st.floats(allow_nan=False)),
    ("string", "orc/bytes", pa.string(), st.text(max_size=40)),
    ("string", "orc/char:6", pa.string(), st.text(max_size=6)),
    ("string", "orc/varchar:6", pa.string(), st.text(max_size=6)),
    ("binary", "orc/bytes", pa.binary(), st.binary(max_size=40)),
    ("timestamp", "orc/timestamp:java:UTC", pa.timestamp("us"), st.integers(MIN_US, 2**60)),
    ("timestamp", "orc/timestamp:c++:UTC", pa.timestamp("us"), st.integers(MIN_US, 2**60)),
    ("timestamptz", "orc/instant:java", pa.timestamp("us", "UTC"), st.integers(-5_000_000, 5_000_000)),
    ("timestamptz", "orc/instant:c++", pa.timestamp("us", "UTC"), st.integers(-5_000_000, 5_000_000)),
    ("timestamp_ns", "orc/timestamp:c++:UTC", pa.timestamp("ns"), st.integers(-(2**62), 2**62)),
    ("timestamp", LA, pa.timestamp("us"), st.integers(DAY_US, 2**52)),
]


@pytest.mark.parametrize(("column", "name", "kind", "values"), AXIS, ids=str)
@pytest.mark.parametrize("twins", [False, True])
def test_every_hashed_value_is_probed(column: str, name: str, kind: Any, values: Any, twins: bool) -> None:
    encoding = OrcEncoding.parse(name)
    raw = pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date(kind) else kind

    @settings(max_examples=60, deadline=None)
    @given(values)
    def check(value: Any) -> None:
        hashes = hash_orc(pa.array([value], raw).cast(kind), encoding, twins=twins)
        probe = probe_orc(value, column, encoding)
        assert probe.verdict == "probe"
        assert set(probe.hashes) & set(hashes.tolist())

    check()


@pytest.mark.parametrize("text", ["orc/decimal", "orc/decimal64"])
def test_every_hashed_decimal_is_probed(text: str) -> None:
    digits = 38 if text == "orc/decimal" else 18

    @settings(max_examples=200, deadline=None)
    @given(st.integers(1 - 10**digits, 10**digits - 1), st.integers(0, digits))
    def check(unscaled: int, scale: int) -> None:
        with localcontext() as context:
            context.prec = 80
            value = Decimal(unscaled).scaleb(-scale)
        encoding = OrcEncoding.parse(f"{text}:{scale}")
        (h,) = hash_orc(pa.array([value], pa.decimal128(digits, scale)), encoding)
        assert probe_orc(value, f"decimal({digits}, {scale})", encoding).hashes == (int(h),)

    check()
