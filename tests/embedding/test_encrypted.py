"""Embedding into encrypted files with some keys, no keys, wrong ones; stripping; nothing in clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sidecar.crypto.key_material import KmsKeys
from sidecar.crypto.keys import EncryptionKeys
from sidecar.embedding.embed import embed
from sidecar.embedding.strip import strip
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError, UsageError
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.encrypted.sealing import Sealing
from sidecar.parquet.footer import ColumnChunk, read_footer
from sidecar.parquet.thrift import Struct
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.local import LocalSource
from sidecar.storage.source import SourceFile
from tests.embedding.cases import chunks
from tests.embedding.encrypted_cases import (
    ENCRYPTED_FOOTER,
    PLAIN_FOOTER,
    PREFIXED,
    TABLE,
    WithoutKey,
    filters_of,
    opened,
    written,
)
from tests.embedding.encryption_matrix import (
    COLUMNS,
    Kind,
    Kms,
    read_by_arrow,
    write_by_arrow,
)

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
FOOTERS = pytest.mark.parametrize("kind", [PLAIN_FOOTER, ENCRYPTED_FOOTER], ids=["plaintext", "encrypted"])


def embedded(path: Path, keys: EncryptionKeys, name: str = "embedded.parquet", **options: Any) -> Any:
    target = path.with_name(name)
    asked: dict[str, Any] = {"bloom": COLUMNS, "page_index": True}
    return target, embed(str(path), into=str(target), encryption_keys=keys, **asked | options).only


def stored_parts(path: Path, chunk: ColumnChunk) -> list[bytes]:
    """Filter, ColumnIndex and OffsetIndex as they stand in the file."""
    data = path.read_bytes()
    return [
        data[at : at + (length or 0)]
        for at, length in (
            (chunk.bloom_filter_offset, chunk.bloom_filter_length),
            (chunk.column_index_offset, chunk.column_index_length),
            (chunk.offset_index_offset, chunk.offset_index_length),
        )
        if at
    ]


@FOOTERS
def test_a_column_without_its_key_keeps_what_it_has(kind: Kind, tmp_path: Path) -> None:
    path, some = written(kind, tmp_path), kind.ours(retriever=WithoutKey("kc1"))
    first, report = embedded(path, some, "first.parquet")
    told = {(o.kind, o.column): o for o in report.outcomes}
    assert told["bloom", "k"].reason == "the key of the column is missing"
    assert told["page-index", "s"].reason == "k of the row group has no page index"
    assert {c for (_, c) in filters_of(first, some)} == set(COLUMNS) - {"k"}
    assert {c for (_, c) in filters_of(first, kind.ours())} == set(COLUMNS) - {"k"}
    assert read_by_arrow(kind, first).equals(TABLE)

    full, _ = embedded(path, kind.ours(), "full.parquet")
    again, report = embedded(full, some, "again.parquet", reuse="never", fpp=0.001)
    assert {o.way for o in report.outcomes if o.column == "k"} <= {"exact", "none"}
    assert {o.way for o in report.outcomes if o.kind == "page-index" and o.column == "s"} == {"values"}
    before, after = opened(full, kind.ours())[1], opened(again, kind.ours())[1]
    for one, other in zip(chunks(before), chunks(after), strict=True):
        parts = stored_parts(full, one), stored_parts(again, other)
        assert (parts[0] == parts[1]) == (one.leaf.path == "k")
        assert len(parts[1]) == 3
    assert verify_file(opened(again, kind.ours())[0]) == []
    assert read_by_arrow(kind, again).equals(TABLE)

    bare = tmp_path / "bare.parquet"
    report = strip(str(full), str(bare), encryption_keys=some).only
    left = opened(bare, kind.ours())[1]
    assert {c.leaf.path for c in chunks(left) if c.bloom_filter_offset or c.offset_index_offset} == {"k"}
    assert {o.reason for o in report.outcomes if o.column == "k"} == {"the key of the column is missing"}
    assert report.written.dead_bytes > 0
    with pytest.raises(UnsupportedFeatureError, match="nothing can be moved"):
        embedded(path, some, "moved.parquet", placement="row-group")
    assert not (tmp_path / "moved.parquet").exists()


@FOOTERS
def test_without_the_footer_key_nothing_is_written(kind: Kind, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    for keys in (
        None,
        kind.ours(retriever=WithoutKey("kf")),
        EncryptionKeys(column_keys={"k": kind.key("kc1")}),
    ):
        for work in (embed, strip):
            options: dict[str, Any] = {"bloom": ["d"]} if work is embed else {}
            with pytest.raises(SidecarError) as caught:
                work(str(path), into=str(tmp_path / "out.parquet"), encryption_keys=keys, **options)
            assert isinstance(caught.value, UsageError | UnsupportedFeatureError)
    with pytest.raises(DamagedFileError):
        embedded(path, EncryptionKeys(footer_key=bytes(16)))
    assert sorted(tmp_path.iterdir()) == [path]


def test_what_stays_and_what_is_fresh(tmp_path: Path) -> None:
    """The file's id and key metadata stay; every new module has a nonce of its own, in every run."""
    path = written(ENCRYPTED_FOOTER, tmp_path)
    keys = ENCRYPTED_FOOTER.ours()
    nonces: list[bytes] = []
    for name in ("one.parquet", "two.parquet"):
        target, _ = embedded(path, keys, name)
        before, after = opened(path, keys)[1], opened(target, keys)[1]
        assert before.encryption is not None
        assert after.encryption is not None
        assert after.encryption.crypto_metadata == before.encryption.crypto_metadata
        assert after.encryption.columns == before.encryption.columns
        for chunk in chunks(after):
            if (chunk.row_group, chunk.leaf.index) in after.encryption.columns:
                filter_, *indexes = stored_parts(target, chunk)
                header = 4 + int.from_bytes(filter_[:4], "little")
                nonces += [part[4:16] for part in (filter_[:header], filter_[header:], *indexes)]
    assert len(nonces) == 2 * 2 * 4 * 4  # files, row groups, encrypted columns, modules
    assert len(set(nonces)) == len(nonces)


def test_a_footer_in_clear_tells_places_alone(tmp_path: Path) -> None:
    """What it has of encrypted columns is what it had, and where their filters are: the same as is sealed."""
    path, keys = written(PLAIN_FOOTER, tmp_path), PLAIN_FOOTER.ours()
    target, _ = embedded(path, keys)
    told = [meta for group in read_footer(LocalSource(str(path))).metadata.structs(4) or () for meta in clear(group)]
    after = read_footer(LocalSource(str(target)))
    now = [meta for group in after.metadata.structs(4) or () for meta in clear(group)]
    for before, meta, chunk in zip(told, now, chunks(opened(target, keys)[1]), strict=True):
        assert meta.fields.keys() == before.fields.keys() | {14, 15}
        assert (meta.integer(14), meta.integer(15)) == (chunk.bloom_filter_offset, chunk.bloom_filter_length)
        if chunk.leaf.path not in "dp":
            assert not {12, 13} & meta.fields.keys(), "statistics, encodings of pages"


def clear(group: Struct) -> list[Struct]:
    """The ColumnMetaData that stand in clear."""
    return [chunk.struct(3) or Struct() for chunk in group.structs(1) or ()]


def test_kept_filters_are_copied_as_ciphertext(tmp_path: Path) -> None:
    path, keys = written(PLAIN_FOOTER, tmp_path), PLAIN_FOOTER.ours()
    first, _ = embedded(path, keys, "first.parquet")
    again, report = embedded(first, keys, "again.parquet", placement="row-group")
    assert report.ways() == {"bloom": {"exact": 12}, "page-index": {"exact": 12}}
    for one, other in zip(chunks(opened(first, keys)[1]), chunks(opened(again, keys)[1]), strict=True):
        before, after = stored_parts(first, one), stored_parts(again, other)
        assert after[:2] == before[:2]
        assert (after[2] == before[2]) == (one.leaf.path in "dp" and one.row_group == 0)
    assert verify_file(opened(again, keys)[0]) == []
    assert read_by_arrow(PLAIN_FOOTER, again).equals(TABLE)


def test_readers_without_keys(tmp_path: Path) -> None:
    path, keys = written(PLAIN_FOOTER, tmp_path), PLAIN_FOOTER.ours()
    target, report = embedded(path, keys)
    assert [w for w in report.warnings() if "DuckDB does not read encrypted files with filters" in w]
    assert pq.read_table(target, columns=["d", "p"]).equals(TABLE.select(["d", "p"]))
    assert not embedded(path, keys, "clear.parquet", bloom=["p", "d"])[1].warnings()


def test_a_prefix_that_names_the_path(tmp_path: Path) -> None:
    path = written(PREFIXED, tmp_path)

    def rule(file: str) -> bytes:
        return PREFIXED.prefix or b"" if file == str(path) else b"another"

    target, report = embedded(path, PREFIXED.ours(aad_prefix=rule))
    assert any("AAD prefix" in warning for warning in report.warnings())
    with pytest.raises(DamagedFileError, match="prefix"):
        opened(target, PREFIXED.ours(aad_prefix=rule))
    assert read_by_arrow(PREFIXED, target).equals(TABLE)


@FOOTERS
def test_key_material_beside_the_file_is_copied(kind: Kind, tmp_path: Path) -> None:
    path, keys = tmp_path / "file.parquet", EncryptionKeys(KmsKeys(Kms, None))
    write_by_arrow(kind, path, TABLE, outside=True)
    assert {p.name for p in tmp_path.iterdir()} == {"file.parquet", "_KEY_MATERIAL_FOR_file.parquet.json"}
    target, report = embedded(path, keys, "target.parquet")
    assert not any("key material" in warning for warning in report.warnings())
    assert verify_file(opened(target, keys)[0]) == []
    bare = tmp_path / "bare.parquet"
    strip(str(target), str(bare), encryption_keys=keys)
    assert verify_file(opened(bare, keys)[0]) == []
    explicit = opened(path, keys)[1].encryption
    assert explicit is not None
    (tmp_path / "_KEY_MATERIAL_FOR_file.parquet.json").unlink()
    only_footer = EncryptionKeys(footer_key=explicit.footer_key)
    _, report = embedded(path, only_footer, "without.parquet", page_index=False)
    assert any("key material" in warning for warning in report.warnings())


def test_foreign_files_with_filters_of_their_own(tmp_path: Path) -> None:
    """parquet-java's three kinds of encrypted file, embedded into and stripped."""
    column_keys = {"str": b"1234567890123450", "f64_clean": b"1234567890123451"}
    for name, prefix in (
        ("j118_enc_gcm_encfooter", None),
        ("j118_enc_gcm_uniform_dict", b"tester"),
        ("j118_enc_gcmctr_plainfooter_aadsupplied", b"tester"),
    ):
        keys = EncryptionKeys(footer_key=b"0123456789012345", column_keys=column_keys, aad_prefix=prefix)
        path = DATA / f"{name}.parquet"
        before = filters_of(path, keys)
        bare, target = tmp_path / f"bare-{name}.parquet", tmp_path / f"{name}.parquet"
        strip(str(path), str(bare), encryption_keys=keys)
        assert not filters_of(bare, keys)
        columns = sorted({column for _, column in before})
        embed(str(bare), into=str(target), bloom=columns, page_index=True, placement="row-group", encryption_keys=keys)
        assert filters_of(target, keys).keys() >= before.keys()
        view, _ = opened(target, keys)
        assert verify_file(view) == []
        original = pq.ParquetFile(SourceFile(opened(path, keys)[0])).read()  # type: ignore[arg-type]
        assert pq.ParquetFile(SourceFile(view)).read().equals(original)  # type: ignore[arg-type]


def test_filters_that_a_writer_left_in_clear_do_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither behind the pages, as the parquet crate has them, nor between row groups."""
    path, keys = written(PLAIN_FOOTER, tmp_path), PLAIN_FOOTER.ours()
    with monkeypatch.context() as patched:
        patched.setattr(Sealing, "filter", lambda _self, _row_group, _column, data: data)
        leaking, _ = embedded(path, keys, "leaking.parquet", placement="row-group", bloom=["k", "p"])
    rust = EncryptionKeys(footer_key=b"0123456789012345", column_keys={"str": b"1234567890123450"})
    for source, columns, opening in (
        (leaking, ["k", "p"], keys),
        (DATA / "variants" / "rs_enc_bloom.parquet", ["str", "i"], rust),
    ):
        view, footer = opened(source, opening)
        data = source.read_bytes()
        leaks = [c for c in chunks(footer) if c.leaf.path == columns[0]]
        bits = [data[c.bloom_filter_offset or 0 :][20 : c.bloom_filter_length] for c in leaks]
        with pytest.raises(DamagedFileError, match="of an encrypted column is not encrypted"):
            read_bloom_filter(view, leaks[0])
        for placement in ("end", "row-group"):
            target = tmp_path / f"{columns[0]}-{placement}.parquet"
            report = embed(
                str(source), into=str(target), page_index=True, placement=placement, encryption_keys=opening
            ).only
            assert {o.way for o in report.outcomes if (o.kind, o.column) == ("bloom", columns[1])} == {"exact"}
            after = target.read_bytes()
            assert not any(piece in after for piece in bits)
            assert verify_file(opened(target, opening)[0]) == []
            assert after.find(bits[0][:32]) < 0
