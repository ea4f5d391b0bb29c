"""Filters that ORC files have: which are taken, which are made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyorc.enums import TypeKind

from sidecar.embedding.embed import embed
from sidecar.orc.protobuf import encode
from sidecar.orc.stripe import StripeFooter, read_stripe_footer
from sidecar.orc.verify.verify import verify_file
from tests.embedding.orc_cases import DATA, NATIVE, PYARROW, copied, embedded, opened, outcomes, streams, ways
from tests.embedding.orc_peers import OrcCpp


def test_corrupt_filters_are_named_and_replaced(tmp_path: Path) -> None:
    before = {p.column for p in verify_file(opened(PYARROW)[0])}
    assert before == {"c_bool", "c_tiny"}
    target, report = embedded(copied(PYARROW, tmp_path), ["c_tiny"])
    assert verify_file(opened(target)[0]) == []
    found = ways(report)
    assert found["c_tiny"] == {"values"}
    assert found["c_bool"] == {"none"}, "nobody asked for it, and it is corrupt"
    assert "hold no values" in outcomes(report)["c_bool"][0].reason
    assert found["c_int"] == found["c_sdir"] == found["c_dec38"] == {"exact"}
    assert outcomes(report)["c_tiny"][0].rate_before is not None
    for one, other in zip(streams(PYARROW), streams(target), strict=True):
        for column in ("c_int", "c_ts", "c_dec18"):
            assert other[("BLOOM_FILTER_UTF8", column)] == one[("BLOOM_FILTER_UTF8", column)]
    cpp = OrcCpp()
    assert cpp.rows(PYARROW, "c_tiny", TypeKind.BYTE, 87) == 0, "what is wrong with the old one"
    assert cpp.rows(target, "c_tiny", TypeKind.BYTE, 87) > 0


@pytest.mark.parametrize(
    ("reuse", "fpp", "way"),
    [
        ("good", 0.01, "exact"),
        ("good", 0.0001, "values"),
        ("always", 0.0001, "exact"),
        ("never", 0.01, "values"),
    ],
)
def test_reuse(tmp_path: Path, reuse: str, fpp: float, way: str) -> None:
    target, report = embedded(copied(NATIVE, tmp_path), ["c_int"], reuse=reuse, fpp=fpp)
    assert ways(report)["c_int"] == {way}
    assert ways(report)["c_big"] == {"exact"}, "not asked for"
    same = streams(target)[0][("BLOOM_FILTER_UTF8", "c_int")] == streams(NATIVE)[0][("BLOOM_FILTER_UTF8", "c_int")]
    assert same == (way == "exact" or fpp == 0.01)


def with_stripe_footers(path: Path, change: Any) -> bytes:
    """An uncompressed file whose stripe footers were changed (their lengths may not)."""
    source, tail = opened(path)
    assert tail.compression == "NONE"
    data = bytearray(path.read_bytes())
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        change(footer)
        raw = encode(footer.raw)
        assert len(raw) == stripe.footer_length
        data[stripe.footer_offset : stripe.footer_offset + len(raw)] = raw
    return bytes(data)


def test_filters_that_only_java_asks_are_made_anew(tmp_path: Path) -> None:
    """BLOOM_FILTER_UTF8 in a column that does not say bloomEncoding 1: C++ passes over it."""

    def unsaid(footer: StripeFooter) -> None:
        messages = footer.raw.messages(2)
        for message in messages:
            if message.has(3):
                message.set(3, 0)
        footer.raw.set_all(2, messages)

    old, target = tmp_path / "old.orc", tmp_path / "new.orc"
    old.write_bytes(with_stripe_footers(DATA / "java_none_utf8.orc", unsaid))
    assert ways(embed(str(DATA / "java_none_utf8.orc"), into=str(tmp_path / "x.orc"), bloom=["c_int"]).only)[
        "c_int"
    ] == {"exact"}
    assert "exact" not in ways(embed(str(old), into=str(target), bloom=["c_int"]).only)["c_int"]
    source, tail = opened(target)
    column = tail.column("c_int")
    assert column is not None
    for stripe in tail.stripes:
        assert read_stripe_footer(source, tail, stripe).encodings[column.id].bloom_encoding == 1


def test_older_forms_become_the_new_one(tmp_path: Path) -> None:
    """BLOOM_FILTER of numbers has the bits of BLOOM_FILTER_UTF8: no value is read."""

    def without_utf8(footer: StripeFooter) -> None:
        """Name the UTF-8 streams what no reader knows: stream kind 9 has a number of one byte, too."""
        messages = footer.raw.messages(1)
        for message in messages:
            if message.varint(1) == 8:
                message.set(1, 4)
        footer.raw.set_all(1, messages)

    old = tmp_path / "old.orc"
    old.write_bytes(with_stripe_footers(DATA / "java_none_original.orc", without_utf8))
    target = tmp_path / "new.orc"
    names = ["c_int", "c_double", "c_date", "c_bin", "c_sdir"]
    report = embed(str(old), into=str(target), bloom=names).only
    found = ways(report)
    assert {name: found[name] for name in names[:4]} == {name: {"converted"} for name in names[:4]}
    assert found["c_sdir"] == {"values"}, "its charset is unknown"
    new, native = streams(target)[0], streams(DATA / "java_none_utf8.orc")[0]
    for name in names:
        assert new[("BLOOM_FILTER_UTF8", name)] == native[("BLOOM_FILTER_UTF8", name)] or name == "c_date"
        assert ("BLOOM_FILTER", name) not in new
