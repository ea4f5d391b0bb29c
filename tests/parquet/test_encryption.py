"""Encrypted files by parquet-java, Arrow C++ and the parquet crate: what they hold is what the plaintext view shows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
import xxhash

import sidecar
from sidecar.access import Access
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError
from sidecar.parquet.bloom import FoundFilter, encode_header, read_bloom_filters
from sidecar.parquet.encrypted.plain_view import DecryptedSource, unlock
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import probe_file as probe
from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex, read_page_indexes
from sidecar.parquet.thrift import PADDING, encode_struct
from sidecar.parquet.verify.file import verify_file as verify
from sidecar.questions.value_check import ValueCheck
from sidecar.reading.file_scanning import open_scan
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource, CountingSource, SourceFile
from tests.parquet.encrypted import OURS, PUBLIC, REBUILT, WRITTEN, keys_of, opened, path_of
from tests.parquet.foreign import expected, leaf_values, same_column_index, written


def by_pyarrow(view: DecryptedSource) -> pa.Table:
    """What pyarrow reads of a view, all of whose columns are unlocked."""
    return pq.ParquetFile(SourceFile(view), page_checksum_verification=True).read()


@pytest.mark.parametrize("name", WRITTEN)
def test_filters_and_indexes_equal_what_parquet_java_reads(name: str) -> None:
    view = opened(name)
    footer = read_footer(view)
    compared = 0
    for group, want in zip(footer.row_groups, expected(name)["row_groups"], strict=True):
        assert (group.first_row, group.num_rows) == (want["first_row"], want["rows"])
        columns, offsets = read_page_indexes(view, footer, group.columns, group.columns)
        filters = read_bloom_filters(view, group.columns)
        for (chunk, found), column, offset in zip(filters, columns, offsets, strict=True):
            there = want["columns"][chunk.leaf.path]
            assert (found is not None) == ("bloom" in there)
            if found is not None:
                assert isinstance(found, FoundFilter)
                assert found.trusted
                assert chunk.bloom_filter_offset == there["bloom_offset"]
                assert found.length == chunk.bloom_filter_length == there["bloom_length"]
                assert found.filter.to_bytes().hex() == there["bloom"]
            assert isinstance(column, ColumnIndex)
            assert isinstance(offset, OffsetIndex)
            same_column_index(column, there["column_index"])
            for index in (column, offset):  # nothing of the view is carried elsewhere
                assert index.raw.rstrip(b"\0") == encode_struct(index.tree).rstrip(b"\0")
                assert PADDING not in index.tree.fields
            table = zip(
                offset.offsets.tolist(),
                offset.compressed_page_sizes.tolist(),
                offset.first_row_indexes.tolist(),
                strict=True,
            )
            assert [list(row) for row in table] == there["offset_index"]
            compared += 1
    assert compared == 3 * len(footer.columns)


@pytest.mark.parametrize("name", [*WRITTEN, *REBUILT])
def test_every_value_that_was_written_is_there_and_in_its_filter(name: str) -> None:
    view = opened(name)
    footer = read_footer(view)
    rows = by_pyarrow(view)
    assert rows["i32_req_asc"].to_pylist() == [
        int.from_bytes(v, "little", signed=True) for v in written()["i32_req_asc"]
    ]
    texts = [None if cell is None else cell.decode() for cell in written()["str"]]
    assert rows["str"].to_pylist() == texts
    asked = 0
    for group in footer.row_groups:
        for chunk, found in read_bloom_filters(view, group.columns):
            if found is not None:
                assert isinstance(found, FoundFilter)
                plain = leaf_values(chunk.leaf.path, group.first_row, group.num_rows)
                hashes = np.array([xxhash.xxh64_intdigest(value) for value in plain], np.uint64)
                assert found.filter.check(hashes).all()
                asked += 1
    assert asked >= 6


@pytest.mark.parametrize("name", [*WRITTEN, *REBUILT, *PUBLIC])
def test_verify_opens_every_module(name: str) -> None:
    assert verify(opened(name), ValueCheck()) == []
    assert sidecar.verify(path_of(name), encryption_keys=keys_of(name)).problems == []


@pytest.mark.parametrize("name", PUBLIC)
def test_public_files_open_with_their_keys(name: str) -> None:
    rows = by_pyarrow(opened(name))
    count = range(rows.num_rows)
    assert rows.num_rows == 50
    assert rows["boolean_field"].to_pylist() == [i % 2 == 0 for i in count]
    assert rows["int32_field"].cast(pa.int32()).to_pylist() == list(count)
    assert rows["double_field"].to_numpy() == pytest.approx([i * 1.1111111 for i in count])
    assert rows["float_field"].to_numpy() == pytest.approx([i * 1.1 for i in count])
    assert [v is None for v in rows["ba_field"].to_pylist()] == [i % 2 == 1 for i in count]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("apache_uniform_encryption.parquet.encrypted", None), ("j118_enc_gcm_uniform_dict", b"tester")],
)
def test_pyarrow_reads_the_same_with_the_key(name: str, prefix: bytes | None) -> None:
    properties = pe.create_decryption_properties(OURS["footer_key"], aad_prefix=prefix)
    theirs = pq.read_table(path_of(name), decryption_properties=properties)
    assert by_pyarrow(opened(name)).equals(theirs)


@pytest.mark.parametrize("name", [*WRITTEN[::2], *REBUILT])
def test_scans_equal_pyarrows_filtering(name: str) -> None:
    rows = by_pyarrow(opened(name))
    text = next(v for v in rows["str"].to_pylist() if v)
    most = sorted(rows["i64_desc"].to_pylist())[99]
    both = pc.and_kleene(pc.greater(rows["f64_clean"], 0.5), pc.less(rows["i32_req_asc"], 100))
    for predicate, mask in (
        (f"str = '{text}'", pc.equal(rows["str"], text)),
        ("str = 'nothing like it'", pc.equal(rows["str"], "nothing like it")),
        (f"i64_desc <= {most}", pc.less_equal(rows["i64_desc"], most)),
        ("f64_clean > 0.5 and i32_req_asc < 100", both),
    ):
        found = sidecar.scan(path_of(name), predicate, encryption_keys=keys_of(name))
        assert found.equals(rows.filter(mask)), predicate
    with open_scan(path_of(name), "str = 'nothing like it'", access=Access(None, keys_of(name))) as scan:
        assert scan.to_table().num_rows == 0
        assert sum(scan.report.dropped.values()) == 3


def test_dictionaries_of_encrypted_columns_are_asked() -> None:
    name = "j118_enc_gcm_uniform_dict"
    with open_scan(path_of(name), "lowcard = 'cat1x'", access=Access(None, keys_of(name))) as scan:
        assert scan.to_table().num_rows == 0
        assert scan.report.dropped["dictionary"] == 3


def test_inspect_shows_what_is_encrypted_and_no_secret() -> None:
    path = path_of("j118_enc_gcm_encfooter")
    shown = sidecar.inspect(path, encryption_keys=EncryptionKeys(None, OURS["footer_key"])).only
    assert shown.encryption.to_dict() == {
        "algorithm": "AES_GCM_V1",
        "footer": "encrypted",
        "verified": True,
        "aad_prefix": None,
        "columns": ["i64_desc", "f64_clean", "str"],
        "locked": ["f64_clean", "str"],
    }
    locked = sidecar.inspect(path).only
    assert (locked.units, locked.rows) == ([], None)
    assert locked.encryption.columns is None
    assert not locked.encryption.verified
    clear = sidecar.inspect(path_of("variants/er_enc_pf_badsig")).only
    assert clear.encryption.footer == "plaintext"
    assert clear.units[0].columns["i32_req_asc"].bloom_filter.trusted
    assert "is encrypted" in clear.units[0].columns["str"].bloom_filter.reason
    for answer in (shown, locked, clear):
        text = json.dumps(answer.to_dict())
        assert "kc1" not in text
        assert "kc2" not in text
        assert "0123456789012345" not in text
    assert sidecar.inspect(path_of("j118_v1_none")).only.encryption is None


def test_columns_without_key_stay_locked_and_the_others_do_not() -> None:
    name = "j118_enc_gcm_encfooter"
    keys = EncryptionKeys(None, OURS["footer_key"])
    view = unlock(LocalSource(path_of(name)), keys)
    rows = by_pyarrow(opened(name))
    most = sorted(rows["i64_desc"].to_pylist())[99]
    found = sidecar.scan(path_of(name), f"i64_desc <= {most}", ["i32_req_asc"], encryption_keys=keys)
    assert found.num_rows >= 100
    assert found["i32_req_asc"].equals(rows.filter(pc.less_equal(rows["i64_desc"], most))["i32_req_asc"])
    for columns, predicate in ((["str"], f"i64_desc <= {most}"), (["i64_desc"], "str = 'a'")):
        with pytest.raises(UnsupportedFeatureError, match="encrypted") as raised:
            sidecar.scan(path_of(name), predicate, columns, encryption_keys=keys)
        assert raised.value.column == "str"
    assert {unit.might_contain for unit in probe(view, "str", "nothing like it")} == {None}
    problems = verify(view)
    assert {(p.column, p.problem) for p in problems} == {
        (column, "the column is encrypted and cannot be checked: its key is missing") for column in ("f64_clean", "str")
    }


def test_a_wrong_signature_is_refused_with_keys_and_the_clear_columns_read_without() -> None:
    name = "variants/er_enc_pf_badsig"
    with pytest.raises(DamagedFileError, match="signature") as raised:
        sidecar.scan(path_of(name), "i32_req_asc > 0", encryption_keys=keys_of(name))
    assert raised.value.offset == 52330
    assert raised.value.file == path_of(name)
    (problem,) = sidecar.verify(path_of(name), encryption_keys=keys_of(name)).problems
    assert "signature" in problem.problem
    found = sidecar.scan(path_of(name), "i32_req_asc >= 0", ["i32_req_asc", "list_str"])
    same = sidecar.scan(path_of("j118_v1_none"), "i32_req_asc >= 0", ["i32_req_asc", "list_str"])
    assert found.equals(same)
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        sidecar.scan(path_of(name), "i32_req_asc > 0", ["str"])


def test_a_filter_in_clear_is_named_and_never_used() -> None:
    path = path_of("variants/rs_enc_bloom")
    keys = keys_of("variants/rs_enc_bloom")
    assert all(
        unit.might_contain is None and "column is not encrypted" in unit.reason
        for unit in sidecar.probe(path, "str", "nothing like it", encryption_keys=keys).only.units
    )
    problems = sidecar.verify(path, encryption_keys=keys).problems
    assert problems
    assert all(p.column == "str" and "column is not encrypted" in p.problem for p in problems)
    rows = sidecar.scan(path, "str is not null", encryption_keys=keys)
    found = sidecar.scan(path, f"str = '{rows['str'][0].as_py()}'", encryption_keys=keys)
    assert found.num_rows >= 1


def test_a_filter_put_in_clear_is_named_with_and_without_keys() -> None:
    name = "variants/er_enc_pf_signed"
    data = Path(path_of(name)).read_bytes()
    leaf = read_footer(opened(name)).leaf("str")
    assert leaf is not None
    chunk = read_footer(opened(name)).row_groups[0].columns[leaf.index]
    at = chunk.bloom_filter_offset or 0
    clear = encode_header(512) + bytes(512)
    source = BytesSource(data[:at] + clear + data[at + len(clear) :])
    for view in (source, opened(name, source)):
        named = [p for p in verify(view) if "column is not encrypted" in p.problem]
        assert [(p.unit, p.column) for p in named] == [(0, "str")]
    found = next(v for v in sidecar.scan(opened(name), "str is not null")["str"].to_pylist() if v)
    assert sidecar.scan(source, f"str = '{found}'", encryption_keys=keys_of(name)).num_rows >= 1


@pytest.mark.parametrize(
    ("changed", "kind", "match"),
    [
        ({"footer_key": None}, UsageError, "key for the footer of an encrypted file is missing"),
        ({"footer_key": b"x" * 16}, DamagedFileError, "encrypted footer: authentication failed"),
        ({"column_keys": {"str": b"x" * 16}}, DamagedFileError, "column metadata of row group 0: authentic"),
        ({"aad_prefix": b"another"}, DamagedFileError, "AAD prefix"),
        (
            {"aad_prefix": lambda path: b"rule" if path.endswith("t") else None},
            DamagedFileError,
            "AAD prefix",
        ),
    ],
)
def test_wrong_keys_and_prefixes(changed: dict[str, Any], kind: type[SidecarError], match: str) -> None:
    with pytest.raises(kind, match=match) as raised:
        opened("j118_enc_gcm_encfooter", **changed)
    assert raised.value.file is not None
    assert "x" * 8 not in str(raised.value)


def test_prefixes_are_compared_and_supplied() -> None:
    stored, supplied = "apache_encrypt_columns_and_footer_aad.parquet.encrypted", WRITTEN[2]
    opened(stored, aad_prefix=b"tester")
    opened(stored, aad_prefix=lambda path: b"tester" if path.endswith(stored) else b"no")
    with pytest.raises(DamagedFileError, match="a different AAD prefix"):
        opened(stored, aad_prefix=b"teste")
    with pytest.raises(UsageError, match="does not store"):
        opened(supplied, aad_prefix=None)
    with pytest.raises(DamagedFileError, match="signature"):
        opened(supplied, aad_prefix=b"another")
    # A plain file in the place of an encrypted one.
    with pytest.raises(DamagedFileError, match="not encrypted"):
        sidecar.scan(path_of("j118_v1_none"), "str = 'a'", encryption_keys=keys_of(supplied))
    allowed = dataclasses.replace(keys_of(""), allow_plaintext_files=True)
    assert sidecar.scan(path_of("j118_v1_none"), "str = 'a'", encryption_keys=allowed).num_rows == 1


def big_file(folder: Path, properties: Any, keys: EncryptionKeys | None) -> str:
    """Eight row groups with filters and page indexes, some 3 MB."""
    bare, path = (
        str(folder / "bare.parquet"),
        str(folder / f"{'plain' if keys is None else 'sealed'}.parquet"),
    )
    pq.write_table(BIG, bare, row_group_size=25_000, encryption_properties=properties, max_rows_per_page=2_000)
    sidecar.embed(bare, into=path, bloom=["k"], encryption_keys=keys)
    return path


BIG = pa.table({"k": np.arange(200_000) * 2 % 199_999, "v": np.random.default_rng(1).random(200_000)})


def test_an_encrypted_file_is_read_like_a_plain_one(tmp_path: Path) -> None:
    """As many reads of nearly as many bytes: for a probe the tail and the filters, for a scan a page a column."""
    keys = EncryptionKeys(None, b"k" * 16)
    plain = CountingSource(LocalSource(big_file(tmp_path, None, None)))
    properties = pe.create_encryption_properties(b"k" * 16)
    sealed = CountingSource(LocalSource(big_file(tmp_path, properties, keys)))
    view = unlock(sealed, keys)
    assert (sealed.reads, sealed.bytes_read) == (1, 64 << 10)
    assert probe(plain, "k", 4242) == probe(view, "k", 4242)
    lengths = [chunk.bloom_filter_length for group in read_footer(view).row_groups for chunk in group.columns]
    assert sealed.bytes_read <= (64 << 10) + sum(filter(None, lengths))
    assert sealed.reads <= plain.reads
    for counted in (plain, sealed):
        counted.reads = counted.bytes_read = 0
    found = [sidecar.scan(source, "k = 4242") for source in (plain, unlock(sealed, keys))]
    assert found[0].equals(found[1])
    assert found[0].equals(BIG.filter(pc.equal(BIG["k"], 4242)))
    assert sealed.bytes_read <= 1.03 * plain.bytes_read + 4096
    assert sealed.reads <= plain.reads + 2


def test_a_set_of_parts_is_checked_as_a_whole(tmp_path: Path) -> None:
    names = ["part-0", "part-1", "part-2"]
    key, prefixes = b"k" * 16, [name.encode() for name in names]
    for stored in (True, False):
        for name, prefix in zip(names, prefixes, strict=True):
            properties = pe.create_encryption_properties(key, aad_prefix=prefix, store_aad_prefix=stored)
            pq.write_table(pa.table({"a": [1]}), tmp_path / name, encryption_properties=properties)
        paths = [str(tmp_path / name) for name in names]
        keys = EncryptionKeys(None, key)
        by_rule = EncryptionKeys(None, key, {}, lambda path: Path(path).name.encode())

        def problems(paths: list[str], prefixes: list[bytes], keys: EncryptionKeys) -> str:
            found = sidecar.verify(paths, aad_prefixes=prefixes, encryption_keys=keys)
            assert found.checked == len(paths)
            return "; ".join(problem.problem for problem in found.problems)

        assert problems(paths, prefixes, keys) == problems(paths, prefixes, by_rule) == ""
        assert "no file has the AAD prefix 'part-2'" in problems(paths[:2], prefixes, keys)
        assert problems(paths, prefixes[:2], keys) != ""
        (tmp_path / "part-1").write_bytes((tmp_path / "part-0").read_bytes())
        told = problems(paths, prefixes, keys)
        assert "no file has the AAD prefix 'part-1'" in told
        assert problems(paths[:2], prefixes[:2], by_rule).count("part-1") == 1
        pq.write_table(pa.table({"a": [1]}), tmp_path / "part-1")
        assert "not encrypted" in problems(paths, prefixes, keys)
    with pytest.raises(UsageError, match="twice"):
        sidecar.verify(paths, aad_prefixes=["a", b"a"], encryption_keys=keys)
