"""inspect, probe and verify of ORC files: what is named, and what is asked."""

from __future__ import annotations

import random
from typing import Any

import pytest

import sidecar
from sidecar.errors import DamagedFileError, UsageError
from sidecar.orc.inspect import inspect_file, probe_file
from sidecar.orc.protobuf import BYTES, VARINT, Message, encode
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics import file_statistics
from sidecar.orc.statistics.column_statistics import ColumnStatistics, decode_statistics
from sidecar.orc.tail import read_tail
from sidecar.orc.verify.verify import verify_file
from sidecar.storage.source import BytesSource
from tests.cli.running import run
from tests.orc.files import DATA, FILES, JAVA, PYARROW, pack, read_all, source

OVER1K = "apache_over1k_bloom.orc"
BAD = "apache_bad_bloom_filter_1.6.11.orc"


def problems(name: str) -> list[tuple[Any, Any, str]]:
    return [(p.unit, p.column, p.problem) for p in verify_file(source(name))]


def test_statistics_of_file_and_stripes_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for again for each column below, after they were compared, and by each filter."""
    decoded: list[int] = []

    def counting(message: Message, column: OrcColumn, *more: Any) -> ColumnStatistics:
        decoded.append(column.id)
        return decode_statistics(message, column, *more)

    monkeypatch.setattr(file_statistics, "decode_statistics", counting)
    inspect_file(source("java_zlib_2stripes_utf8.orc"))
    columns = read_tail(source("java_zlib_2stripes_utf8.orc")).columns
    in_zone = [column.id for column in columns if column.kind == "TIMESTAMP"]  # with the zone of each stripe, too
    assert sorted(decoded) == sorted([*3 * [column.id for column in columns], *2 * in_zone])


def test_the_units_of_a_file() -> None:
    found = inspect_file(source("java_zlib_2stripes_utf8.orc"))
    assert [(u.stripe, u.row_group, u.first_row, u.rows) for u in found.units] == [
        (0, 0, 0, 800),
        (1, 0, 800, 1000),
        (1, 1, 1800, 500),
    ]
    described = found.units[1].columns["c_int"]
    assert described.legacy_bloom_filter is None
    filter_ = described.bloom_filter
    assert {
        "offset",
        "length",
        "bytes",
        "hash",
        "k",
        "m",
        "fill",
        "estimated_fpp",
        "trusted",
        "reason",
        "sha256",
    } <= set(filter_.to_dict())
    assert (filter_.k, filter_.m, filter_.bytes, filter_.trusted) == (7, 9600, 1200, True)
    assert 0.4 < filter_.fill < 0.6
    assert described.row_index.positions.keys() == {"PRESENT", "DATA"}
    assert described.row_index.min < described.row_index.max
    assert found.stripes[1].streams[0].kind == "ROW_INDEX"


def test_every_filter_that_is_not_to_be_trusted_is_named() -> None:
    untrusted: dict[str, set[str]] = {}
    for name in FILES:
        for unit in inspect_file(source(name)).units:
            for path, column in unit.columns.items():
                for key in ("bloom_filter", "legacy_bloom_filter"):
                    if getattr(column, key) and not getattr(column, key).trusted:
                        assert getattr(column, key).reason
                        untrusted.setdefault(f"{name} {key}", set()).add(path)
    assert untrusted.pop(f"{BAD} bloom_filter") == {"id", "name"}
    assert len(untrusted.pop(f"{OVER1K} bloom_filter")) == 10
    assert untrusted.pop(f"{PYARROW} bloom_filter") == {"", "c_bool", "c_tiny", "c_float"}
    legacy = untrusted.pop("java_none_original.orc legacy_bloom_filter")
    assert {"c_bool", "c_char", "c_vchar", "c_ts", "c_tsi"} <= legacy
    assert untrusted
    assert all(columns == {"c_bool"} for columns in untrusted.values())


@pytest.mark.parametrize(("name", "column", "present", "absent"), [
    (BAD, "id", "18000000000", "17"), (BAD, "name", "Alice", "Bob"), (OVER1K, "_col0", "124", "-128"),
    (PYARROW, "c_tiny", "10", "15"), (PYARROW, "c_float", "1.5", "3.25"),
])  # fmt: skip
def test_filters_that_are_not_to_be_trusted_are_not_asked(name: str, column: str, present: str, absent: str) -> None:
    """Minimum and maximum are asked all the same."""
    assert any(unit.might_contain is None for unit in probe_file(source(name), column, present))
    for value in (present, absent):
        for unit in probe_file(source(name), column, value):
            assert unit.might_contain is not True
            if unit.might_contain is False:
                assert unit.reason.removeprefix("stripe: ").split()[0] in ("below", "above", "no")


def test_verify_names_what_is_corrupt_in_a_file_of_pyarrow() -> None:
    named = {column: text for _, column, text in problems(PYARROW)}
    assert set(named) <= {"c_bool", "c_tiny", "c_float"}
    assert "packed bytes" in named["c_tiny"]


def test_verify_names_filters_of_bad_versions_and_forms() -> None:
    assert {column for _, column, text in problems(BAD) if "ORC-1024" in text} == {"id", "name"}
    assert sum("pre-release" in text for _, _, text in problems(OVER1K)) == 16
    assert {column for _, column, _ in problems("java_none_original.orc")} == {
        "c_char", "c_vchar", "c_ts", "c_tsi", "c_dec10", "c_dec18", "c_dec38",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", [name for name in [*JAVA, "apache_orc_index_int_string.orc"] if "original" not in name]
)
def test_sound_files_have_no_problem(name: str) -> None:
    assert problems(name) == []


def test_values_are_held_against_statistics_and_filters() -> None:
    """Eight row groups' values of the tinyint are denied, a bigint among them where the hash was wrong."""
    found = sidecar.verify(str(DATA / PYARROW), data=True)
    assert found.looked_up.units == 3
    denied = [p for p in found.problems if "denies" in p.problem and p.unit is not None]
    assert {p.column for p in denied} == {"c_tiny"}
    bad = sidecar.verify(str(DATA / BAD), data=True)
    assert "the filter denies 2 of 5 values that the row group has" in [p.problem.split(": ")[-1] for p in bad.problems]
    for name in JAVA:
        assert not [p for p in sidecar.verify(str(DATA / name), data=True).problems if p.unit is not None]


def test_statistics_that_lie_are_found_by_the_values() -> None:
    """The first row group's maximum of c_small is set to one less, in a file without compression."""
    name = "java_none_utf8.orc"
    whole = bytearray(source(name).read(0, source(name).size))
    tail, (stripe,) = read_all(source(name))
    column = tail.column("c_small")
    assert column is not None
    index = stripe.indexes[column.id]
    assert index.row_index is not None
    stream = index.streams["ROW_INDEX"]
    statistics = index.row_index.entry(0).statistics
    assert statistics is not None
    own = statistics.bytes_(2)
    assert own is not None
    at = whole.index(own, stream.offset, stream.offset + stream.length)
    maximum = own.index(b"\x10") + 1
    whole[at + maximum] -= 2  # zigzag: one less
    from sidecar.questions.value_check import ValueCheck

    texts = [p.problem for p in verify_file(BytesSource(bytes(whole)), ValueCheck()) if p.column == "c_small"]
    assert any("the row group has" in text for text in texts)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("head", "does not begin with the magic"),
        ("rows", "numberOfRows"),
        ("filter", "denies"),
        ("position", "position in DATA"),
        ("data", "DATA"),
    ],
)
def test_verify_names_what_was_damaged(part: str, text: str) -> None:
    name = "java_zlib_chunk1k_utf8.orc" if part == "data" else "java_none_utf8.orc"
    whole = bytearray(source(name).read(0, source(name).size))
    tail, (stripe,) = read_all(source(name))
    column = tail.column("c_big")
    assert column is not None
    index, footer = stripe.indexes[column.id], stripe.footer
    if part == "head":
        whole[0] = 0
    elif part == "rows":
        return rows_differ(whole, text)
    elif part == "filter":
        stream = index.streams["BLOOM_FILTER_UTF8"]
        whole[stream.offset + 10 : stream.offset + 1100] = bytes(1090)
    elif part == "position":
        shift_position(whole, stripe.indexes[tail.column("c_int").id])
    else:
        data = footer.stream(column.id, "DATA")
        assert data is not None
        whole[data.offset] ^= 0x40
    found = [p.problem for p in verify_file(BytesSource(bytes(whole)))]
    assert any(text in problem for problem in found), found


def shift_position(whole: bytearray, index: Any) -> None:
    """The last row group of c_int: the offset in DATA becomes the greatest of as many bytes, behind the stream."""
    entry = index.row_index.entry(2)
    present, data = list(entry.positions[:3]), list(entry.positions[3:])
    assert 128 <= data[0] < 1 << 14
    at = whole.index(pack(entry.positions), index.streams["ROW_INDEX"].offset)
    wrong = pack([*present, (1 << 14) - 1, *data[1:]])
    whole[at : at + len(wrong)] = wrong


def rows_differ(whole: bytearray, text: str) -> None:
    tail = read_tail(BytesSource(bytes(whole)))
    tail.footer.set(6, tail.num_rows + 1)
    footer = encode(tail.footer)
    tail.postscript.set(1, len(footer))
    postscript = encode(tail.postscript)
    data = bytes(whole[: tail.footer_offset]) + footer + postscript + bytes([len(postscript)])
    assert any(text in p.problem for p in verify_file(BytesSource(data)))


def test_fields_that_are_not_known_change_nothing() -> None:
    """A later version's fields in postscript, footer and stripe footer."""
    name = "java_none_utf8.orc"
    whole = source(name).read(0, source(name).size)
    tail, (stripe,) = read_all(source(name))
    later = [(500, BYTES, b"later"), (501, VARINT, 7)]
    stripe.footer.raw.fields += later
    footer = encode(stripe.footer.raw)
    (information,) = tail.footer.messages(3)
    information.set(4, len(footer))
    information.fields += later
    tail.footer.set_all(3, [information])
    tail.footer.fields += later
    tail_footer = encode(tail.footer)
    tail.postscript.set(1, len(tail_footer))
    tail.postscript.fields[-1:-1] = later
    postscript = encode(tail.postscript)
    at = stripe.footer.stripe
    data = BytesSource(
        whole[: at.footer_offset] + footer + whole[tail.metadata_offset : tail.footer_offset] + tail_footer
        + postscript + bytes([len(postscript)]), name,
    )  # fmt: skip
    again, _ = read_all(data)
    assert [message.bytes_(500) for message in (again.postscript, again.footer, again.stripes[0].information)] == [
        b"later"
    ] * 3
    assert inspect_file(data).units == inspect_file(source(name)).units
    assert verify_file(data) == []


@pytest.mark.parametrize("moved", [60_000, 1])
def test_streams_behind_the_index_are_doubted(moved: int) -> None:
    """A filter stream that lies among the data, or ends there: Java and C++ disagree about where it is."""
    name = "java_none_utf8.orc"
    whole = source(name).read(0, source(name).size)
    tail, (stripe,) = read_all(source(name))
    at = stripe.footer.stripe
    (information,) = tail.footer.messages(3)
    information.set(2, at.index_length - moved)
    information.set(3, at.data_length + moved)
    tail.footer.set_all(3, [information])
    footer = encode(tail.footer)
    tail.postscript.set(1, len(footer))
    postscript = encode(tail.postscript)
    data = BytesSource(whole[: tail.footer_offset] + footer + postscript + bytes([len(postscript)]))
    _, (read,) = read_all(data)
    assert read.footer.doubt
    assert not any(f.trusted for index in read.indexes.values() for f in index.filters or ())
    assert any("listed after" in p.problem for p in verify_file(data))


def test_columns_and_literals_that_do_not_fit_are_refused() -> None:
    of = source("java_zlib_utf8.orc")
    with pytest.raises(UsageError, match="no column 'c_inx'"):
        probe_file(of, "c_inx", "1")
    with pytest.raises(UsageError):
        probe_file(of, "c_int", "one")
    with pytest.raises(UsageError):
        probe_file(of, "", "1")
    assert {u.might_contain for u in probe_file(of, "c_null", "1")} == {False}


def test_statistics_are_asked_before_filters() -> None:
    reasons = {u.reason for u in probe_file(source(PYARROW), "c_sdir", "\U0010ffff")}
    assert len(reasons) == 1
    assert reasons.pop().startswith("stripe: above the maximum ")
    reasons = {u.reason for u in probe_file(source(PYARROW), "c_tiny", "100")}
    assert "above the maximum 19" in reasons


def test_the_magic_may_be_missing_at_one_end() -> None:
    whole = bytearray(source("java_zlib_utf8.orc").read(0, source("java_zlib_utf8.orc").size))
    start_only = whole[:-4] + b"CRO" + whole[-1:]
    assert read_tail(BytesSource(bytes(start_only))).num_rows == 2300
    with pytest.raises(DamagedFileError, match="not an ORC file"):
        read_tail(BytesSource(b"CRO" + bytes(start_only[3:])))


# --- the command line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_the_command_line_draws_every_file(name: str) -> None:
    shown = run("inspect", str(DATA / name), code=0)
    assert "written by" in shown.output
    assert "stripe" in shown.output
    verified = run("verify", str(DATA / name), "--json")
    assert verified.exit_code == (
        1 if "apache_b" in name or "over1k" in name or "original" in name or name == PYARROW else 0
    )


def test_the_command_line_probes_by_stripe_and_row_group() -> None:
    shown = run("probe", str(DATA / "java_zlib_2stripes_utf8.orc"), "c_int", "17", code=0)
    assert "stripe 0, 0" in shown.output
    assert "may hold it" in shown.output


def test_noise_between_the_magics_is_one_sentence(tmp_path: Any) -> None:
    path = tmp_path / "noise"
    path.write_bytes(b"ORC" + random.Random(1).randbytes(500) + b"ORC\x10")
    shown = run("inspect", str(path), code=1)
    assert shown.stderr.startswith("error: ")
    assert shown.stderr.count("\n") == 1
