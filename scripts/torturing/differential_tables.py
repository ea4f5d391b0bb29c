"""Random tables for comparisons of plans, with predicates over them, and copies whose sidecars are damaged.

A :class:`Case` is plain data, so that it can be asked on any version of the code: places of metadata files, and texts.
A damaged sidecar is a file beside the sound one, and the case has metadata that names it: nothing is changed in place.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import sidecar
from scripts.fuzzing.sidecar_files import section_changed
from scripts.fuzzing.sidecar_layout import put_section
from tests.iceberg.cases import local
from tests.iceberg.encrypted_tables import SECRET, bundle_keys, encrypted_table
from tests.iceberg.forging import Forgery, sections_of
from tests.life.pasts import make_past
from tests.reports.find_cases import as_text, leaves, name_of, random_value
from tests.tables import new_catalog

PLAIN = {"write.avro.compression-codec": "null", "write.parquet.compression-codec": "uncompressed"}
"""Properties of tables whose metadata can be moved by replacing texts of one length."""
MOST_FORGED = 200 << 10
"""Bytes of the largest sidecar that is taken apart and put together again."""
WHOLE = "whole"


@dataclass
class Case:
    """A table and what is asked of it."""

    name: str
    metadata: dict[str, str]
    """Places of metadata files by what was done to a sidecar; :data:`WHOLE` has the sound ones."""
    asked: list[tuple[str, int | None]]
    """Predicates, each with a snapshot or ``None``."""
    keys: list[list[int]] = field(default_factory=list)
    """Keys of column ``k`` for semi-joins."""
    searched: list[tuple[str, str]] = field(default_factory=list)
    """Columns with values, for searches."""
    is_encrypted: bool = False
    is_served_often: bool = False


def make_cases(folder: Path, tables: int, predicates: int, seed: int = 0) -> Iterator[Case]:
    """Make about so many tables, with so many predicates for each."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = new_catalog(folder, "lake")
    shares = {histories: 0.7, tables_with_segments: 0.2, encrypted_tables: 0.1}
    for make, share in shares.items():
        for number in range(seed, seed + max(1, round(share * tables))):
            yield from make(catalog, number, predicates)


def case_of(name: str, table: Table, asked: list[tuple[str, int | None]], **more: Any) -> Case:
    """Return a case, with damaged copies of the table's sidecars."""
    metadata = {WHOLE: table.metadata_location}
    rng = random.Random("damage " + name)
    metadata |= {what: _with_sidecar(table, what, *damaged) for what, damaged in _damages(table, rng)}
    return Case(name, metadata, asked, **more)


def as_json(case: Case) -> str:
    """Return a case as one line."""
    return json.dumps(asdict(case))


def histories(catalog: SqlCatalog, number: int, each: int) -> Iterator[Case]:
    """Tables that were changed a dozen times, with searches; of some numbers none can be made."""
    flavour = "mixed" if number % 3 == 2 else "parquet"
    try:
        made = make_past(catalog, number, flavour)
    except Exception as error:  # pyiceberg refuses some of the random changes
        print(f"no history {number}, {flavour}: {error!r}"[:100])
        return
    if made.table.current_snapshot() is not None:
        asked = [(made.predicate(), made.snapshot()) for _ in range(each)]
        columns = leaves(made.table)
        searched = [
            (name_of(made.table, key), as_text(columns[key], random_value(made.rng, columns[key], made.next_id)))
            for key in made.rng.sample(sorted(columns), 4)
        ]
        yield case_of(f"history {flavour} {number}", made.table, asked, searched=searched)


def tables_with_segments(catalog: SqlCatalog, number: int, each: int) -> Iterator[Case]:
    """Segments that list the same manifests, some with files that only one has; some tables are moved."""
    rng = random.Random(f"segments {number}")
    parts = rng.choice([3, 8, 70, 90])
    table = catalog.create_table(f"db.s_{number:03}", _longs(rng, 1).schema, properties=PLAIN)
    if number % 3 == 1:
        with table.update_spec() as spec:
            spec.add_identity("s")
    if parts > 20 or number % 4 == 0:
        merged = {"commit.manifest-merge.enabled": "true"}
        merged |= {"commit.manifest.min-count-to-merge": str(rng.choice([2, 5]))}
        with table.transaction() as transaction:
            transaction.set_properties(merged)
    order = [["k"], ["v"], ["s"], ["k", "v"]]
    rng.shuffle(order)
    builds = sorted(rng.sample(range(1, parts + 1), min(parts, rng.choice([1, 2, 3]))))
    for part in range(1, parts + 1):
        table.append(_longs(rng, rng.choice([3, 20])))
        if part in builds:
            kinds = rng.choice([["bloom"], ["bloom", "page-index"]])
            sidecar.build(table, order[builds.index(part)], kinds=kinds, engine="local")
            table = table.refresh()
        if rng.random() < 0.05:
            table.delete(f"k < {rng.randrange(0, 600)}")
    if rng.random() < 0.7:
        for columns in order[:2]:
            sidecar.build(table, columns, kinds=["bloom"], engine="local")
            table = table.refresh()
    asked = [(_predicate_of_longs(rng), _snapshot(table, rng)) for _ in range(each)]
    keys = [sorted(rng.sample(range(0, 8000), count)) for count in rng.choices([1, 5, 200], k=3)]
    yield case_of(f"segments {number}, {parts} commits", table, asked, keys=keys, is_served_often=True)
    if number % 2 == 0:
        moved = _moved(catalog, table)
        yield case_of(f"moved {number}, {parts} commits", moved, [(text, None) for text, _ in asked[: each // 2]])


def encrypted_tables(catalog: SqlCatalog, number: int, each: int) -> Iterator[Case]:
    """Tables with encrypted files and sidecars; half of the predicates ask the encrypted column."""
    rng = random.Random(f"encrypted {number}")
    bounds = rng.choice([(), (1, 2, 3)])
    table = encrypted_table(catalog, f"db.e_{number}", files=rng.choice([3, 6]), bounds=bounds)
    sidecar.build(
        table, ["ssn", "id"], kinds=["bloom", "page-index"], engine="local", encryption_keys=bundle_keys("ssn")
    )
    asked: list[tuple[str, int | None]] = []
    for _ in range(each):
        secret, key = SECRET.format(rng.randrange(700)), rng.randrange(700)
        forms = (f"ssn = '{secret}'", f"ssn > '{secret}' and id < {key}", f"id = {key}", f"ssn = '{secret}' or v = 3")
        asked.append((rng.choice(forms), None))
    yield case_of(f"encrypted {number}", table.refresh(), asked, is_encrypted=True)


def _snapshot(table: Table, rng: random.Random) -> int | None:
    if rng.random() < 0.75 or not table.metadata.snapshots:
        return None
    return int(rng.choice(table.metadata.snapshots).snapshot_id)


def _longs(rng: random.Random, count: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([rng.randrange(0, 4000) * 2 for _ in range(count)], pa.int64()),
            "v": pa.array([rng.randrange(0, 50) for _ in range(count)], pa.int64()),
            "s": [rng.choice("abcdefgh") * 3 for _ in range(count)],
        }
    )


def _predicate_of_longs(rng: random.Random) -> str:
    leaf = [
        f"k = {rng.randrange(0, 8000)}",
        f"k in ({rng.randrange(0, 8000)}, {rng.randrange(0, 8000)})",
        f"v = {rng.randrange(0, 55)}",
        f"v < {rng.randrange(0, 20)}",
        f"k > {rng.randrange(0, 8000)}",
        f"s = '{rng.choice('abcdefghz') * 3}'",
        f"s != '{rng.choice('abcdefghz') * 3}'",
    ]
    form = rng.choice(["{0}", "{0}", "{0} and {1}", "{0} or {1}", "({0} or {1}) and {2}"])
    return form.format(*rng.sample(leaf, 3))


def _moved(catalog: SqlCatalog, table: Table) -> Table:
    """A copy as ``rewrite_table_path`` makes it, of a table whose name begins with ``s_``."""
    old = table.location()
    new = old.replace("/s_", "/t_")
    shutil.copytree(local(old), local(new))
    for path in (local(new) / "metadata").iterdir():
        if path.suffix in (".avro", ".json"):  # texts of one length: nothing else changes
            path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    name = table.name()[-1].replace("s_", "t_")
    return catalog.register_table(f"db.{name}", f"{new}/metadata/{local(table.metadata_location).name}")


def _damages(table: Table, rng: random.Random) -> Iterator[tuple[str, tuple[int, bytes | None]]]:
    """Yield what is wrong with a sidecar of the table: its place among the statistics and its bytes."""
    known = [at for at, entry in enumerate(table.metadata.statistics) if local(entry.statistics_path).exists()]
    if not known:
        return
    at = known[-1] if rng.random() < 0.7 else rng.choice(known)
    data = local(table.metadata.statistics[at].statistics_path).read_bytes()
    size = len(data)
    yield "gone", (at, None)
    yield "short", (at, data[: rng.randrange(size)])
    yield "one bit", (at, _flipped(data, [rng.randrange(size)], rng))
    yield "one bit near the end", (at, _flipped(data, [rng.randrange(max(0, size - 4000), size)], rng))
    yield "many bits", (at, _flipped(data, rng.sample(range(size), max(1, size // 50)), rng))
    if size < MOST_FORGED:
        for number in range(2):
            forged = _hostile(data, rng)
            if forged is not None:
                yield f"hostile {number}", (at, forged)


def _flipped(data: bytes, places: list[int], rng: random.Random) -> bytes:
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _hostile(data: bytes, rng: random.Random) -> bytes | None:
    """Other content of the units table with good checksums; ``None`` if the sidecar has none that can be forged."""
    try:
        forged = Forgery.of(data)
        units = forged.units()
        sections = {name: pieces for name, pieces in sections_of(units).items() if pieces and name[0] != "lengths"}
        name = rng.choice(list(sections))
        number = rng.randrange(len(sections[name]))
        put_section(units, name, number, section_changed(rng, name[0], sections[name][number]))
        forged.link()
        return forged.stored()
    except Exception as error:  # encrypted blobs cannot be taken apart, and no segment may be in the file
        print(f"no hostile sidecar: {error!r}"[:100])
        return None


def _with_sidecar(table: Table, what: str, at: int, data: bytes | None) -> str:
    """Return the place of metadata in which one statistics file is another one, or is not there."""
    name = what.replace(" ", "-")
    place = local(table.metadata_location)
    content = json.loads(place.read_text())
    # Metadata may have the statistics in another order than pyiceberg, so that they are found by path.
    path = table.metadata.statistics[at].statistics_path
    (entry,) = [one for one in content["statistics"] if one["statistics-path"] == path]
    entry["statistics-path"] = f"{path}.{name}"
    if data is not None:
        local(entry["statistics-path"]).write_bytes(data)
        if what.startswith("hostile"):  # the table knows how long it is
            footer = int.from_bytes(data[-12:-8], "little") + 16
            entry |= {"file-size-in-bytes": len(data), "file-footer-size-in-bytes": footer}
    changed = place.with_name(f"{place.name.removesuffix('.metadata.json')}.{name}.metadata.json")
    changed.write_text(json.dumps(content))
    return f"file:{changed}"
