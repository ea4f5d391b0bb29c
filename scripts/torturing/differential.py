"""Plans of this checkout beside those of another one: ``scripts/torture differential OTHER``.

Random tables are made once, whole, damaged, moved and encrypted; then each code is asked the same of all of them: plans
by every way to find files, with keys of joins, of a server, and searches. What is compared is in
:mod:`scripts.torturing.differential_answers`. ``--but notes,funnel.listed`` leaves parts of the answers out. The other
checkout needs the packages of this one, no environment of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from scripts.torturing.differential_tables import as_json, make_cases
from tests.disk import spare_disk
from tests.memoized_pyiceberg import spare_pyiceberg

HERE = Path(__file__).resolve().parents[2]
ANSWERS = Path(__file__).with_name("differential_answers.py")
SHOWN = 2
"""Differences of one kind that are printed."""
LONGEST = 600
"""Characters of a value that are printed."""


def main(arguments: list[str]) -> int:
    """Compare. Returns 1 if some answers differ, or if there are none."""
    given = _parser().parse_args(arguments)
    with ExitStack() as ends:
        folder = given.folder or Path(ends.enter_context(tempfile.TemporaryDirectory()))
        cases = folder / "cases.jsonl"
        if not cases.exists():
            _make(folder, cases, given)
        found = folder / "other.jsonl", folder / "this.jsonl"
        asking = [_ask(code, cases, out) for code, out in zip((given.other, HERE), found, strict=True)]
        ended = [process.wait() for process in asking]
        if any(ended):
            return 1
        return compare(*found, but=given.but)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/torture differential", description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--tables", type=int, default=100, help="about how many tables")
    parser.add_argument("--predicates", type=int, default=25, help="how many of each table")
    parser.add_argument("--seed", type=int, default=0, help="tables are the same for the same seed")
    parser.add_argument("--folder", type=Path, help="keep tables and answers there; tables that are there are used")
    parser.add_argument("--but", type=lambda text: text.split(","), default=[], help="parts that may differ")
    return parser


def _make(folder: Path, cases: Path, given: argparse.Namespace) -> None:
    spare_pyiceberg()
    spare_disk()
    made = [as_json(case) for case in make_cases(folder, given.tables, given.predicates, given.seed)]
    cases.write_text("".join(f"{line}\n" for line in made))


def _ask(code: Path, cases: Path, out: Path) -> subprocess.Popen[bytes]:
    """Ask one code, in a process that has nothing else on its path."""
    environment = {**os.environ, "PYTHONPATH": str(code.resolve()), "PYTHONSAFEPATH": "1"}
    environment["PYTHONHASHSEED"] = "0"  # pyiceberg writes the values of IN in the order of a set
    return subprocess.Popen([sys.executable, str(ANSWERS), str(cases), str(out)], cwd=code, env=environment)


def compare(other: Path, this: Path, but: Collection[str] = ()) -> int:
    """Print how many answers differ and in what, with some of each kind; return 1 if any does, or there are none."""
    features, kinds, predicates, same = Counter[str](), Counter[str](), set[str](), 0
    reads = Counter[str]()
    with other.open() as lines, this.open() as others:
        for line, theirs in zip(lines, others, strict=True):
            (key, before), (asked, after) = json.loads(line), json.loads(theirs)
            assert key == asked, "the codes were asked different questions"
            predicates.add(repr(key[:2]))
            features.update(_features(before))
            reads.update(_reads("other", before) | _reads("this", after))
            different = {name: pair for name, pair in _differences(before, after) if name not in but}
            if not different:
                same += 1
                continue
            kind = ", ".join(sorted(different))
            kinds[kind] += 1
            if kinds[kind] <= SHOWN:
                print(key, *(_shown(name, *pair) for name, pair in different.items()), sep="\n  ")
    total = same + kinds.total()
    print(f"{total:,} answers to {len(predicates):,} predicates, {same:,} of them the same")
    print(", ".join(f"{name}: {count:,}" for name, count in features.items()))
    print(", ".join(f"{name}: {count:,}" for name, count in reads.items()))
    for kind, count in kinds.most_common():
        print(f"{count:>8,} differ in {kind}")
    return 1 if kinds or not total else 0


def _features(answer: dict[str, Any]) -> Iterator[str]:
    """What an answer has, so that a comparison of nothing does not pass for one."""
    dropped = answer.get("funnel", {}).get("dropped", {})
    has = {
        "errors": "error" in answer,
        "plans": "funnel" in answer,
        "with files dropped by filters": bool(dropped.get("filter")),
        "by page indexes": bool(dropped.get("page_index")),
        "with row groups": bool(answer.get("row_groups")),
        "warnings": bool(answer.get("warnings")),
        "files found under earlier paths": any("path within" in note for note in answer.get("notes", ())),
        "deletes": any(task[1] for task in answer.get("tasks", ())),
        "served": "document" in answer,
        "searches": "conditions" in answer,
    }
    return (name for name, is_there in has.items() if is_there)


def _reads(code: str, answer: dict[str, Any]) -> dict[str, int]:
    """What a plan read of a sidecar."""
    names = (f"reads of {code} code", f"bytes of {code} code")
    return dict(zip(names, answer.get("reads", (0, 0)), strict=True))


def _differences(before: Any, after: Any, name: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the parts of two answers that differ, by their names, two levels deep."""
    for key in {**before, **after}:
        pair = before.get(key), after.get(key)
        if pair[0] == pair[1]:
            continue
        part = f"{name}.{key}" if name else key
        if not name and key in ("funnel", "facts") and None not in pair:
            yield from _differences(*pair, part)
        else:
            yield part, pair


def _shown(name: str, before: Any, after: Any) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        before, after = ({key: one[key] for key in keys if key in one} for one in (before, after))
    return f"{name}\n    other {str(before)[:LONGEST]}\n    this  {str(after)[:LONGEST]}"
