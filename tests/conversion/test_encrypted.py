"""extract of encrypted Parquet files: what may go into a Puffin file, in which form, and the way back into a file."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import sidecar
from sidecar.bundle.model import UnitState
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.verify import verify_sidecar
from sidecar.conversion.matching.match import BY_ENCRYPTION
from sidecar.conversion.protection import PLAINTEXT_PROPERTY
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.errors import SidecarError, UsageError
from sidecar.parquet.bloom import read_bloom_filters
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource
from tests.bundle.cases import group_filters
from tests.conversion.cases import foreign, rows

FILE = "j118_enc_gcm_encfooter"
FOOTER = b"0123456789012345"
COLUMNS = {b"kc1": b"1234567890123450", b"kc2": b"1234567890123451"}
SECRET_COLUMNS = {"str", "f64_clean", "i64_desc"}
MASTER = b"planted-master-1"


def keys(**bundles: str) -> EncryptionKeys:
    retriever = ExplicitKeys({**COLUMNS, b"master": MASTER})
    named = {column: name.encode() for column, name in bundles.items()}
    return EncryptionKeys(retriever, FOOTER, bundle_keys=named)


def test_encrypted_columns_are_left_out_and_named_ones_refused(tmp_path: Path) -> None:
    source = str(foreign(FILE))
    with pytest.raises(SidecarError):
        sidecar.extract([source], str(tmp_path / "none.puffin"))
    with pytest.raises(UsageError, match="would leak"):
        sidecar.extract([source], str(tmp_path / "x.puffin"), columns=["str"], encryption_keys=keys())
    assert list(tmp_path.iterdir()) == []
    report = sidecar.extract([source], str(tmp_path / "x.puffin"), encryption_keys=keys())
    left = {unit.column for unit in report.units if unit.reason == UnitState.REFUSED}
    assert left >= SECRET_COLUMNS
    assert not left & {unit.column for unit in report.units if unit.way == "exact"}
    assert {unit.column for unit in report.units if unit.way == "exact"} >= {"i32_req_asc"}
    assert PLAINTEXT_PROPERTY.encode() not in (tmp_path / "x.puffin").read_bytes()
    without = EncryptionKeys(None, FOOTER)
    report = sidecar.extract([source], str(tmp_path / "y.puffin"), encryption_keys=without)
    assert {unit.column for unit in report.units if unit.reason == UnitState.ENCRYPTED} >= {
        "str",
        "f64_clean",
    }
    for name in ("x.puffin", "y.puffin"):
        data = (tmp_path / name).read_bytes()
        assert [column for column in SECRET_COLUMNS if f"name:{column}".encode() in data] == []
        assert b"name:i32_req_asc" in data


def test_plaintext_says_so_in_its_properties(tmp_path: Path) -> None:
    path = tmp_path / "x.puffin"
    report = sidecar.extract([str(foreign(FILE))], str(path), encryption_keys=keys(), allow_plaintext=True)
    blobs = SidecarFile.open(LocalSource(str(path))).puffin.metadata.blobs
    numbers = {report.fields[column] for column in SECRET_COLUMNS}
    marked = {blob.fields[0] for blob in blobs if blob.properties.get(PLAINTEXT_PROPERTY) == "true"}
    assert numbers <= marked
    assert report.fields["i32_req_asc"] not in marked


def test_there_and_back_in_encrypted_bundles(tmp_path: Path) -> None:
    """With the key the file gets back what it had; without it nothing is taken out."""
    source, puffin = str(foreign(FILE)), tmp_path / "x.puffin"
    own = keys(str="master", f64_clean="master", i64_desc="master")
    columns = sorted(SECRET_COLUMNS)
    report = sidecar.extract([source], str(puffin), columns=columns, encryption_keys=own)
    opened = SidecarFile.open(LocalSource(str(puffin)), encryption_keys=keys(), strict=True)
    (segment,) = opened.segments
    assert all(bundle.toc.lock is not None for bundle in segment.bundles.values())
    view = unlock(LocalSource(source), own)
    footer = read_footer(view)
    compared = 0
    for column in columns:
        leaf = footer.leaf(column)
        assert leaf is not None
        chunks = [group.columns[leaf.index] for group in footer.row_groups]
        stored = {
            chunk.row_group: found.filter.to_bytes()
            for chunk, found in read_bloom_filters(view, [c for c in chunks if c.bloom_filter_offset])
            if found is not None and not isinstance(found, SidecarError)
        }
        number = report.fields[column]
        found = {u: b for g in segment.fields.get(number, ()) for u, b in group_filters(segment, number, g)}
        assert found == stored
        compared += len(found)
    assert compared >= 3
    assert verify_sidecar(LocalSource(str(puffin)), encryption_keys=keys()) == []
    assert any("not checked" in p.problem for p in verify_sidecar(LocalSource(str(puffin))))
    data = puffin.read_bytes()
    assert MASTER not in data
    assert not any(bitset in data for bitset in stored.values())
    bare, back = tmp_path / "bare.parquet", tmp_path / "back.parquet"
    sidecar.strip(source, str(bare), encryption_keys=own)
    sidecar.embed(str(bare), into=str(back), from_=str(puffin), encryption_keys=own)
    again = tmp_path / "again.puffin"
    second = sidecar.extract([str(back)], str(again), columns=columns, encryption_keys=own)
    moved = [
        [(u.column, u.row_group) for u in done.units if (u.kind, u.way) == ("bloom", "exact")]
        for done in (report, second)
    ]
    assert moved[0] == moved[1] != []


def test_encrypted_files_of_one_shape_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    """Keys, schema and row groups are those of the file that was indexed; only the random id is another one."""
    own, puffin = EncryptionKeys(footer_key=FOOTER), str(tmp_path / "x.puffin")
    bare = [tmp_path / f"bare-{number}.parquet" for number in range(2)]
    for number, path in enumerate(bare):
        properties = pe.create_encryption_properties(FOOTER)
        pq.write_table(rows(number, 300), path, row_group_size=100, encryption_properties=properties)
    indexed, out = tmp_path / "indexed.parquet", tmp_path / "out.parquet"
    sidecar.embed(str(bare[0]), into=str(indexed), bloom=["k"], encryption_keys=own)
    sidecar.extract([str(indexed)], puffin, encryption_keys=own, allow_plaintext=True)
    with pytest.raises(UsageError, match=r"keys of encrypted files were given.*allow_plaintext_indexes"):
        sidecar.embed(str(bare[0]), into=str(out), from_=puffin, encryption_keys=own)
    own = EncryptionKeys(footer_key=FOOTER, allow_plaintext_indexes=True)
    report = sidecar.embed(str(bare[0]), into=str(out), from_=puffin, encryption_keys=own).only
    assert (report.witness.proof, report.ways()["bloom"]) == (BY_ENCRYPTION, {"exact": 3})
    with pytest.raises(UsageError, match="does not list this file"):
        sidecar.embed(str(bare[1]), into=str(tmp_path / "no.parquet"), from_=puffin, encryption_keys=own)
    assert not (tmp_path / "no.parquet").exists()
