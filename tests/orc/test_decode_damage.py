"""Damaged streams of row groups: values or our error, and no memory for counts that lie."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.orc
import pytest

from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.orc.decode import read_row_groups
from sidecar.orc.stripe import StripeFooter
from sidecar.orc.tail import Stripe
from tests.orc.decode_cases import orc_file, random_table


def read_everything(data: bytes) -> None:
    """Values or an error of ours, whatever the bytes are."""
    try:
        file = orc_file(data)
        for stripe in file.tail.stripes:
            for column in file.leaves():
                for group in stripe.row_groups[:3]:
                    try:
                        file.group(stripe, group.ordinal, column).validate(full=True)
                    except SidecarError:
                        continue
    except SidecarError:
        return


def small_file(codec: str) -> bytes:
    rng = random.Random(7)
    sink = io.BytesIO()
    pyarrow.orc.write_table(
        random_table(rng, 300),
        sink,
        compression=codec,
        row_index_stride=100,
        dictionary_key_size_threshold=0.5,
    )
    return sink.getvalue()


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_changed_bytes_give_values_or_our_error(codec: str) -> None:
    data = small_file(codec)
    rng = random.Random(codec)
    for _ in range(20):
        broken = bytearray(data)
        for _ in range(rng.choice([1, 1, 8])):
            broken[rng.randrange(3, len(data))] ^= 1 << rng.randrange(8)
        read_everything(bytes(broken))


def test_streams_that_end_early_are_damage() -> None:
    data = small_file("uncompressed")
    file = orc_file(data)
    stripe, footer = file.tail.stripes[0], file.footers[0]
    for column in file.leaves():
        if column.path == "n":
            continue
        kept = [s if s.column != column.id or s.kind != "DATA" else s._replace(length=0) for s in footer.streams]
        short = StripeFooter(stripe, kept, footer.encodings, footer.writer_timezone, [], footer.raw)
        with pytest.raises(DamagedFileError, match="ends early"):
            list(read_row_groups(file.source, file.tail, stripe, short, column))
        gone = [s for s in footer.streams if s.column != column.id or s.kind != "DATA"]
        absent = StripeFooter(stripe, gone, footer.encodings, footer.writer_timezone, [], footer.raw)
        with pytest.raises(DamagedFileError, match="no stream DATA"):
            list(read_row_groups(file.source, file.tail, stripe, absent, column))


@pytest.mark.parametrize(
    ("rows", "error"), [(1 << 22, DamagedFileError), (1 << 50, UnsupportedFeatureError)], ids=["2^22", "2^50"]
)
def test_counts_beyond_what_bytes_can_hold_are_refused_before_memory_is_taken(
    rows: int, error: type[Exception]
) -> None:
    file = orc_file(small_file("uncompressed"))
    stripe, footer = file.tail.stripes[0], file.footers[0]
    huge = Stripe(
        0,
        stripe.offset,
        stripe.index_length,
        stripe.data_length,
        stripe.footer_length,
        rows,
        0,
        0,
        stripe.information,
    )
    for column in file.leaves():
        with pytest.raises(error):
            list(read_row_groups(file.source, file.tail, huge, footer, column))


@pytest.mark.parametrize("broken", [b"a\xc3bz", b"\xc3\xa9z\xff"], ids=["cut off", "no start of a character"])
def test_text_that_is_not_utf_8_is_damage(broken: bytes) -> None:
    """Readers show such bytes as other characters, which a filter of the bytes would deny."""
    sink = io.BytesIO()
    pyarrow.orc.write_table(pa.table({"t": ["a\u00e9", "z"]}), sink, compression="uncompressed")
    data = sink.getvalue()
    assert data.count(b"a\xc3\xa9z") == 1
    file = orc_file(data.replace(b"a\xc3\xa9z", broken))
    with pytest.raises(DamagedFileError, match="not valid for its kind STRING"):
        file.groups(file.tail.stripes[0], file.tail.columns[1])


@pytest.mark.parametrize(("name", "version"), [("d", (0, 12)), ("n", (1, 9999))])
def test_decimals_of_more_digits_than_their_column_are_damage(name: str, version: tuple[int, int]) -> None:
    """In files of the version 1.9999 a short decimal is an integer: a column of integers stands for one."""
    sink = io.BytesIO()
    values = pa.array([Decimal("9.99"), Decimal("-9.99")], pa.decimal128(5, 2))
    pyarrow.orc.write_table(pa.table({"d": values, "n": [999, -999]}), sink, compression="uncompressed")
    file = orc_file(sink.getvalue())
    file.tail = replace(file.tail, file_version=version)
    found = file.tail.column(name)
    assert found is not None
    three, two = (replace(found, kind="DECIMAL", precision=digits, scale=2) for digits in (3, 2))
    (decoded,) = file.groups(file.tail.stripes[0], three)
    assert decoded.to_pylist() == values.to_pylist()
    with pytest.raises(DamagedFileError, match="too many digits"):
        file.groups(file.tail.stripes[0], two)
