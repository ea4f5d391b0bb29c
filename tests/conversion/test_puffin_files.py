"""inspect and probe of a Puffin file without its table; data files and tables are the oracles."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.bundle import listed_files
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.storage.local import LocalSource
from tests.bundle.cases import group_filters
from tests.conversion.cases import foreign, indexed, rows
from tests.conversion.test_encrypted import FILE, FOOTER, SECRET_COLUMNS, keys
from tests.iceberg.cases import create

PUBLISHED = Path(__file__).resolve().parents[2] / "spec_vectors" / "published"
FOREIGN = Path(__file__).resolve().parents[1] / "data" / "puffin"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files ``part-N.parquet``, and ``x.puffin`` with their indexes."""
    folder = tmp_path_factory.mktemp("puffin")
    parts = [str(indexed(folder, number)) for number in range(3)]
    sidecar.extract(parts, str(folder / "x.puffin"))
    return folder


@pytest.fixture(scope="module")
def table(catalog: Any) -> Any:
    made = create(catalog, "db.puffin_files", files=2, partitioned=False)
    sidecar.build(made, ["i", "s", "dec9", "u", "tz"], kinds=["bloom", "theta"], engine="local")
    made.refresh()
    return made


def sidecar_of(table: Any) -> str:
    return str(table.metadata.statistics[0].statistics_path)


def answers(found: dict[str, Any]) -> list[tuple[str, int, bool | None]]:
    return [(Path(u["file"]).name, u["row_group"], u["might_contain"]) for u in found["units"]]


def test_inspect_describes_files_columns_and_fill(folder: Path) -> None:
    path = str(folder / "x.puffin")
    found = sidecar.inspect(path, fill=True).only.to_dict()
    assert [(Path(f["path"]).name, f["rows"], f["row_groups"]) for f in found["files"]] == [
        (f"part-{number}.parquet", 3000, 3) for number in range(3)
    ]
    assert {f["size"] for f in found["files"]} == {
        (folder / Path(f["path"]).name).stat().st_size for f in found["files"]
    }
    columns = {column["name"]: column for column in found["columns"]}
    assert set(columns) == {"k", "s", "n", "tags.list.element"}
    assert set(columns["k"]["kinds"]) == {"bloom", "page-index"}
    assert (found["tables"], found["snapshots"], found["warnings"]) == ([str(uuid.UUID(int=0))], [-1], [])
    for name in ("k", "s", "n"):
        own = [
            unit["columns"][name]["bloom_filter"]
            for number in range(3)
            for unit in sidecar.inspect(str(folder / f"part-{number}.parquet")).only.to_dict()["units"]
        ]
        filters = columns[name]["kinds"]["bloom"]
        assert (filters["units"], filters["locked"], filters["encrypted"]) == (9, None, False)
        for key in ("fill", "estimated_fpp"):
            stated = [one[key] for one in own]
            expected = {"min": min(stated), "mean": sum(stated) / 9, "max": max(stated)}
            assert filters["fill"][key] == pytest.approx(expected)
        assert filters["fill"]["filters_read"] == sum(filters["fill"]["histogram"]) == 9


def test_inspect_reads_no_filter_unless_asked(folder: Path) -> None:
    kinds = [column["kinds"] for column in sidecar.inspect(str(folder / "x.puffin")).only.to_dict()["columns"]]
    assert {index["fill"] for kind in kinds for name, index in kind.items() if name == "bloom"} == {None}


def test_fill_of_filters_of_several_sizes_and_of_orc_filters(tmp_path: Path) -> None:
    small, large = indexed(tmp_path, 1, 300), indexed(tmp_path, 2, 3000)
    sidecar.convert([str(small), str(large)], str(tmp_path / "w.puffin"))
    found = sidecar.inspect(str(tmp_path / "w.puffin"), fill=True).only.to_dict()["columns"]
    own = [
        unit["columns"]["k"]["bloom_filter"]["fill"]
        for path in (small, large)
        for unit in sidecar.inspect(str(path)).only.to_dict()["units"]
    ]
    fill = next(c for c in found if c["name"] == "k")["kinds"]["bloom"]["fill"]["fill"]
    assert fill == pytest.approx({"min": min(own), "mean": sum(own) / len(own), "max": max(own)})
    orc.write_table(pa.table({"k": pa.array(range(5000))}), tmp_path / "a.orc", bloom_filter_columns=[1])
    sidecar.extract([str(tmp_path / "a.orc")], str(tmp_path / "o.puffin"))
    (column,) = sidecar.inspect(str(tmp_path / "o.puffin"), fill=True).only.to_dict()["columns"]
    found_orc = column["kinds"]["orc-bloom"]["fill"]
    (segment,) = SidecarFile.open(LocalSource(str(tmp_path / "o.puffin"))).segments
    (group,) = segment.fields[column["id"]]
    kept = [group.rule.filter_from(bits) for _, bits in group_filters(segment, column["id"], group)]
    assert found_orc["fill"]["max"] == pytest.approx(max(one.fill() for one in kept))
    assert found_orc["estimated_fpp"]["max"] == pytest.approx(max(one.estimated_fpp() for one in kept))


def test_probe_answers_as_the_data_files_do(folder: Path) -> None:
    """The filters of each file are the oracle; no value of a file is denied."""
    path = str(folder / "x.puffin")
    for number in range(3):
        values = rows(number).slice(0, 1000).to_pylist()
        for row in values[::97]:
            for column in ("k", "n", "s"):
                value = row[column]
                if value is None:
                    continue
                found = answers(sidecar.probe(path, column, str(value)).only.to_dict())
                own = [
                    (f"part-{part}.parquet", unit["row_group"], unit["might_contain"])
                    for part in range(3)
                    for unit in sidecar.probe(str(folder / f"part-{part}.parquet"), column, str(value)).only.to_dict()[
                        "units"
                    ]
                ]
                assert found == own
                assert (f"part-{number}.parquet", 0, True) in found


def test_probe_takes_python_values_ids_and_names(folder: Path) -> None:
    path, value = str(folder / "x.puffin"), rows(0)["k"][0].as_py()
    expected = answers(sidecar.probe(path, "k", str(value)).only.to_dict())
    assert answers(sidecar.probe(path, "k", value).only.to_dict()) == expected
    assert answers(sidecar.probe(path, "1", value).only.to_dict()) == expected
    assert answers(sidecar.probe(path, 1, value).only.to_dict()) == expected
    assert sidecar.probe(path, "k", value).only.to_dict()["types"] == ["long"]
    with pytest.raises(UsageError, match=r"no column 'kk'.*Did you mean k"):
        sidecar.probe(path, "kk", value)
    with pytest.raises(UsageError, match="does not fit the column 'k'"):
        sidecar.probe(path, "k", "many")


@pytest.mark.parametrize("column", ["i", "s", "dec9", "u", "tz"])
def test_probe_of_a_tables_sidecar_answers_as_the_table(table: Any, column: str) -> None:
    """The table's answer is the oracle."""
    field = table.schema().find_field(column)
    scanned = [value for value in table.scan().to_arrow()[column].to_pylist() if value is not None]
    for value in scanned[::7]:
        text = str(value).replace("+00:00", "Z")
        kept = {task.file.file_path for task in sidecar.plan(table, f"{column} = '{text}'").tasks}
        for asked in (str(field.field_id), field.field_id, column):
            found = sidecar.probe(sidecar_of(table), asked, text).only.to_dict()
            assert found["types"] == [str(field.field_type)]
            assert kept <= {unit["file"] for unit in found["units"] if unit["might_contain"] is not False}
            assert any(unit["might_contain"] for unit in found["units"])
    with pytest.raises(UsageError, match="has no column 'nope'"):
        sidecar.probe(sidecar_of(table), "nope", "1")


def test_inspect_of_a_tables_sidecar_has_table_snapshot_and_distinct_counts(table: Any) -> None:
    found = sidecar.inspect(sidecar_of(table)).only.to_dict()
    assert found["tables"] == [str(table.metadata.table_uuid)]
    assert found["snapshots"] == [table.metadata.current_snapshot_id]
    data = table.scan().to_arrow()
    stated = {column["id"]: column["distinct_values"] for column in found["columns"] if column["kinds"]}
    for name in ("i", "s", "dec9"):
        values = [value for value in data[name].to_pylist() if value not in (None, "")]  # a sketch skips ""
        assert stated[table.schema().find_field(name).field_id] == len(set(values))
    named = {column["id"]: (column["name"], column["type"]) for column in found["columns"]}
    fields = [table.schema().find_field(name) for name in ("i", "s", "dec9", "u", "tz")]
    assert named == {field.field_id: (field.name, str(field.field_type)) for field in fields}


def test_a_value_that_can_be_text_or_bytes_is_asked_as_both(tmp_path: Path) -> None:
    data = pa.table({"b": pa.array([b"\x00\xff", b"0x41"] * 50)})
    pq.write_table(data, tmp_path / "a.parquet", bloom_filter_options={"b": {"ndv": 2, "fpp": 1e-4}})
    path = str(tmp_path / "x.puffin")
    sidecar.extract([str(tmp_path / "a.parquet")], path)
    both = sidecar.probe(path, "b", "0x00ff").only.to_dict()
    assert both["types"] == ["string", "binary"]
    assert [unit["might_contain"] for unit in both["units"]] == [True]
    assert [u["might_contain"] for u in sidecar.probe(path, "b", "0x41").only.to_dict()["units"]] == [True]
    assert [u["might_contain"] for u in sidecar.probe(path, "b", b"\x00\xff").only.to_dict()["units"]] == [True]


def test_one_name_in_files_of_different_types(tmp_path: Path) -> None:
    for name, values in (("a", pa.array(range(100))), ("b", pa.array([str(n) for n in range(100)]))):
        data = pa.table({"v": values})
        pq.write_table(data, tmp_path / f"{name}.parquet", bloom_filter_options={"v": {"ndv": 100}})
    path = str(tmp_path / "x.puffin")
    sidecar.extract([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], path)
    assert answers(sidecar.probe(path, "v", "5").only.to_dict()) == [
        ("a.parquet", 0, True),
        ("b.parquet", 0, True),
    ]
    text = sidecar.probe(path, "v", "five").only.to_dict()
    assert answers(text) == [("a.parquet", 0, None), ("b.parquet", 0, False)]


def test_a_damaged_filter_is_kept_with_a_reason(folder: Path, tmp_path: Path) -> None:
    data = bytearray((folder / "x.puffin").read_bytes())
    (blob,) = (
        blob
        for blob in sidecar.inspect(str(folder / "x.puffin")).only.to_dict()["blobs"]
        if blob["type"] == "sidecar-sbbf-v1" and blob["fields"] == [1]
    )
    for at in range(blob["offset"] + 100, blob["offset"] + 15_000, 2000):
        data[at] ^= 1
    path = tmp_path / "damaged.puffin"
    path.write_bytes(data)
    found = sidecar.probe(str(path), "k", 5).only.to_dict()
    assert {unit["might_contain"] for unit in found["units"]} <= {None, False}
    assert None in {unit["might_contain"] for unit in found["units"]}
    assert found["warnings"]
    fill = next(c for c in sidecar.inspect(str(path), fill=True).only.to_dict()["columns"] if c["id"] == 1)["kinds"][
        "bloom"
    ]
    assert fill["fill"]["filters_read"] == 0
    assert "damaged" in fill["fill"]["reasons"][0]


def test_sealed_filters_are_named_and_open_with_keys(tmp_path: Path) -> None:
    path, columns = str(tmp_path / "x.puffin"), sorted(SECRET_COLUMNS)
    own = keys(**dict.fromkeys(columns, "master"))
    sidecar.extract([str(foreign(FILE))], path, columns=columns, encryption_keys=own)
    for given, is_open in ((None, False), (EncryptionKeys(None, FOOTER), False), (keys(), True)):
        found = sidecar.inspect(path, fill=True, encryption_keys=given).only.to_dict()
        for column in found["columns"]:
            filters = column["kinds"]["bloom"]
            assert filters["encrypted"]
            assert (filters["locked"] is None) == is_open
            assert (filters["fill"]["filters_read"] > 0) == is_open
        probed = sidecar.probe(path, "str", "surely absent", encryption_keys=given).only.to_dict()
        assert {unit["might_contain"] for unit in probed["units"]} == ({False} if is_open else {None})
        assert bool(probed["warnings"]) != is_open


@pytest.mark.parametrize(
    "path", [PUBLISHED / "iceberg.puffin", *sorted(FOREIGN.glob("*.bin"))], ids=lambda path: path.stem
)
def test_files_of_others_are_described_and_have_no_filters(path: Path) -> None:
    found = sidecar.inspect(str(path), fill=True).only.to_dict()
    assert (found["files"], found["tables"], found["warnings"]) == ([], [], [])
    assert len(found["snapshots"]) == len({blob["snapshot-id"] for blob in found["blobs"]})
    if path.stem == "iceberg":
        assert [(c["id"], c["distinct_values"], set(c["kinds"])) for c in found["columns"]] == [(1, 300, {"theta"})]
    with pytest.raises(UsageError, match="it is not a sidecar"):
        sidecar.probe(str(path), "1", "5")
    with pytest.raises(UsageError, match="it is not a sidecar"):
        sidecar.verify(str(path), against=["a.parquet"])


def test_what_a_file_may_claim_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(folder / "x.puffin")
    monkeypatch.setattr(listed_files, "MOST_UNITS", 8)
    with pytest.raises(UnsupportedFeatureError, match="too many row groups"):
        sidecar.probe(path, "k", 5)
    found = sidecar.inspect(path).only.to_dict()
    assert found["files"] == []
    assert any("too many row groups" in warning for warning in found["warnings"])


def test_a_sidecar_without_readable_segments_raises_its_damage(folder: Path, tmp_path: Path) -> None:
    data = (folder / "x.puffin").read_bytes()
    path = tmp_path / "bad.puffin"
    path.write_bytes(data.replace(b"SCUN", b"XXXX").replace(b"SCTC", b"XXXX"))
    with pytest.raises(DamagedFileError):
        sidecar.probe(str(path), "k", 5)
