"""Differences that are meant, between the plans of the code before file sets and those of this code.

A rule states a cause and checks it: it returns the answer of the other code as this code would give it. What no rule
changes has to be equal. For a comparison with another checkout the rules do no harm, and say nothing.
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
Columns = dict[str, tuple[int, str]]
"""The id and type of each column by its name."""
_LATER_FIELDS = 4
"""Fields that format version 3 adds to a delete file."""
_NULL_IN_STRUCT = re.compile(r"\w+\.\w+ is (not )?null")


@dataclass(frozen=True)
class Asked:
    """A question with both answers."""

    key: list[Any]
    before: Answer
    after: Answer
    sound: Answer | None = None
    """This code's answer for the sidecar without damage, if it was asked before."""
    names_other_columns: bool = False
    """Whether a name in the predicate means another column, or none, or has another type, in the schema of the
    snapshot that is asked; for a search, in that of any snapshot."""
    kept: Collection[str] | None = None
    """The files that the other code's plan of the present snapshot keeps, if it was asked before."""

    @property
    def text(self) -> str:
        """The predicate."""
        return str(self.key[1])

    @property
    def what(self) -> str:
        """What was done to the table: ``whole``, ``twice``, or the damage of its sidecar."""
        return str(self.key[-1])

    @property
    def is_plan(self) -> bool:
        """Whether both are plans, not errors."""
        return "tasks" in self.before and "tasks" in self.after

    @property
    def is_served(self) -> bool:
        """Whether both are answers of the server."""
        return "document" in self.before and "document" in self.after

    @property
    def is_damaged(self) -> bool:
        """Whether the sidecar is damaged."""
        return self.what not in ("whole", "twice")

    def taking(self, *parts: str) -> Answer:
        """Return the answer before with these parts of the one after."""
        return self.before | {part: self.after[part] for part in parts if part in self.after}


def fields_of_version_3(asked: Asked) -> Answer:
    """Delete files are read with the fields of format version 3, which others leave empty."""
    if not asked.is_plan:
        return asked.before

    found = {delete for _, deletes, _ in asked.after["tasks"] for delete in deletes}

    def longer(text: str) -> str:
        *parts, spec_id = literal_eval(text)
        padded = repr((*parts, *["None"] * _LATER_FIELDS, spec_id))
        return padded if padded in found else text

    tasks = [[file, sorted(map(longer, deletes)), residual] for file, deletes, residual in asked.before["tasks"]]
    return asked.before | {"tasks": tasks}


def reads(asked: Asked) -> Answer:
    """Stages have another order, so that other parts of the sidecar are read. Totals are printed."""
    if asked.is_served:
        return asked.before | {"facts": asked.before["facts"] | _some(asked.after["facts"], "index_bytes_read")}
    return asked.taking("reads")


def own_schema(asked: Asked) -> Answer:
    """A snapshot that is named is asked in its own schema. Names mean other columns in the present one, or none."""
    is_one = isinstance(asked.key[2], int) and asked.names_other_columns
    return asked.after if is_one else asked.before


def nulls_of_structs(asked: Asked) -> Answer:
    """Counts of NULLs in manifests are not believed for fields of optional structs: more files are kept, never less."""
    if not _NULL_IN_STRUCT.search(asked.text):
        return asked.before
    if asked.is_plan:
        tasks = {str(task) for task in asked.after["tasks"]}
        groups = asked.after["row_groups"]
        is_more = {str(task) for task in asked.before["tasks"]} <= tasks and _adds_up(asked.after)
        is_same = all(groups.get(path) == known for path, known in asked.before["row_groups"].items())
        return asked.after if is_more and is_same else asked.before
    if asked.is_served:
        paths = [{_path(task) for task in _tasks(one)} for one in (asked.before, asked.after)]
        return asked.after if paths[0] <= paths[1] else asked.before
    return asked.before


def listed_twice(asked: Asked) -> Answer:
    """Files of a manifest that a list names twice count twice, as their tasks do."""
    is_counted = asked.what == "twice" and asked.is_plan and _adds_up(asked.after)
    return asked.taking("funnel", "answered", "notes") if is_counted else asked.before


def answered_and_kept(asked: Asked) -> Answer:
    """Files that page indexes drop are no longer among those that filters answered."""
    if not asked.is_plan:
        return asked.before
    kept = {*asked.after["kept"]}
    return asked.before | {"answered": [path for path in asked.before["answered"] if path in kept]}


def listed_once(asked: Asked) -> Answer:
    """A file counts as listed once, however many segments list it, and as indexed if filters drop it."""
    if not asked.is_plan:
        return asked.before
    before, after = asked.before["funnel"], asked.after["funnel"]
    is_less = after["listed"] < before["listed"] and after["indexed"] <= min(before["indexed"], after["listed"])
    may_match = sum(count for reason, count in after["kept_because"] if reason.startswith("may match"))
    is_whole = after["dropped"]["filter"] <= after["indexed"] <= sum(after["dropped"].values()) + may_match
    is_more = before["indexed"] < after["indexed"] <= after["listed"] <= before["listed"] and is_whole
    return asked.before | {"funnel": before | _some(after, "listed", "indexed")} if is_less or is_more else asked.before


def records_not_opened(asked: Asked) -> Answer:
    """Bounds answer for != and NOT IN, so that all records are walked and their manifest is not opened."""
    if not asked.is_plan or not re.search(r"!=|\bnot\b", asked.text):
        return asked.before
    before, after = asked.before["manifests"], asked.after["manifests"]
    counts = [(one["listed"] + one["opened"], one["total"], one["deletes"]) for one in (before, after)]
    is_meant = counts[0] == counts[1] and after["opened"] < before["opened"]
    return asked.taking("manifests") if is_meant else asked.before


def filters_first(asked: Asked) -> Answer:
    """A file that bounds and filters rule out counts for the stage that comes first."""
    if not asked.is_plan or not (asked.is_damaged or asked.key[3] == "opened"):
        return asked.before
    before, after = asked.before["funnel"], asked.after["funnel"]

    def left(funnel: Answer) -> Any:
        groups, dropped = funnel["row_groups"], funnel["dropped"]
        by_filter = groups["total"] - groups["dropped"]["filter"]
        return funnel["kept"], funnel["total"], dropped["page_index"], sum(dropped.values()), by_filter

    is_same = left(before) == left(after) and _adds_up(asked.after)
    return asked.before | {"funnel": before | _some(after, "dropped", "row_groups")} if is_same else asked.before


def damage_that_is_met(asked: Asked) -> Answer:
    """Of a damaged sidecar other parts are read. Tasks are the same; row groups are those of the sound one, or all."""
    if not asked.is_plan or not asked.is_damaged or asked.before["tasks"] != asked.after["tasks"]:
        return asked.before
    before, after = asked.before["row_groups"], asked.after["row_groups"]
    sound = {} if asked.sound is None else asked.sound.get("row_groups", {})
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    if any(path in after and after[path] != sound.get(path) for path in changed) or not _adds_up(asked.after):
        return asked.before
    return asked.taking("warnings", "manifests", "funnel", "answered", "row_groups", "notes", "is_locked")


def warnings_name_columns(asked: Asked) -> Answer:
    """A warning about a locked column ends with its name."""
    before, after = asked.before.get("warnings", []), asked.after.get("warnings", [])
    is_named = len(before) == len(after) and all(
        new == old or re.fullmatch(re.escape(old) + r"; column \w+", new)
        for old, new in zip(before, after, strict=True)
    )
    return asked.taking("warnings") if is_named else asked.before


def facts_of_stages(asked: Asked) -> Answer:
    """The server's facts say which stage dropped how many files, but not of requests with several meanings.

    The sentinel is a file that was dropped. Damage that is met is told, as in plans.
    """
    if not asked.is_served or "dropped" in asked.before["facts"]:
        return asked.before
    facts, known = asked.after["facts"], asked.before["facts"]
    dropped = facts["files_total"] - facts["files_kept"] + facts["sentinel"]
    if not facts["dropped"] or sum(facts["dropped"].values()) == dropped:
        known = known | _some(facts, "dropped")
    if asked.is_damaged and {facts["fallback"], known["fallback"]} == {"", "sidecar-damaged"}:
        known = known | _some(facts, "fallback")
    return asked.before | {"facts": known}


def another_sentinel(asked: Asked) -> Answer:
    """Where all files are dropped, any of them is the sentinel that is returned."""
    if not asked.is_served or not (asked.before["facts"]["sentinel"] and asked.after["facts"]["sentinel"]):
        return asked.before
    return asked.taking("document") if len(_tasks(asked.before)) == len(_tasks(asked.after)) == 1 else asked.before


def bytes_of_java(asked: Asked) -> Answer:
    """Java writes bytes as digits of base 16. They are compared now, so that files are ruled out as in plans."""
    if not asked.is_served or not re.search(r"'0x", asked.text):
        return asked.before
    before, after = ({_path(task): task for task in _tasks(one)} for one in (asked.before, asked.after))
    is_planned = before.keys() == after.keys() or (asked.kept is not None and {*asked.kept} <= after.keys())
    is_same = all(_but_residual(before.get(path, {})) == _but_residual(task) for path, task in after.items())
    return asked.after if is_planned and is_same else asked.before


def types_of_promotions(asked: Asked) -> Answer:
    """A search asks for a promoted column in each of its types. More files are read, and none less."""
    if "conditions" not in asked.before or not asked.names_other_columns:
        return asked.before
    paths = {
        name: [{one["file"] for one in answer[name]} for answer in (asked.before, asked.after)]
        for name in ("files_read", "files_ruled_out", "sidecars")
    }
    read, ruled_out, sidecars = (paths[name] for name in paths)
    is_more = read[0] <= read[1] and ruled_out[1] <= ruled_out[0] and sidecars[0] == sidecars[1]
    return asked.taking(*paths, "ruled_out_by") if is_more else asked.before


def opaque_residuals(asked: Asked) -> Answer:
    """Residuals skip no row group in Spark, and have the bytes that Java reads now; pyiceberg gets partitions."""
    if not asked.is_served:
        return asked.before
    document = asked.before["document"]
    return asked.before | {"document": _with_opaque_parts(document, asked.after["document"])}


RULES: tuple[Callable[[Asked], Answer], ...] = (
    fields_of_version_3,
    reads,
    own_schema,
    opaque_residuals,
    facts_of_stages,
    another_sentinel,
    bytes_of_java,
    nulls_of_structs,
    types_of_promotions,
    listed_twice,
    answered_and_kept,
    listed_once,
    records_not_opened,
    filters_first,
    warnings_name_columns,
    damage_that_is_met,
)
"""In this order: a rule sees what those before it changed."""


class Known:
    """What is known of the tables and of the questions that came before."""

    def __init__(self, cases: Iterable[str] = ()) -> None:
        self._metadata = {case["name"]: case["metadata"]["whole"] for case in map(json.loads, cases)}
        self._columns: dict[str, tuple[Columns, dict[int, Columns]]] = {}
        self._about: list[Any] = []
        self._sound: dict[str, Answer] = {}
        self._kept: list[str] | None = None

    def asked(self, key: list[Any], before: Answer, after: Answer) -> Asked:
        """Return a question with what is known of it."""
        if key[:2] != self._about:
            self._about, self._sound, self._kept = key[:2], {}, None
        if key[-1] == "whole" and "kept" in before:
            self._sound[repr(key[:-1])] = after
            self._kept = self._kept if key[2] is not None else before["kept"]
        sound = self._sound.get(repr(key[:-1]))
        return Asked(key, before, after, sound, self._names_other_columns(key), self._kept)

    def _names_other_columns(self, key: list[Any]) -> bool:
        is_search = len(key) == len(("table", "column", "value", "what")) and key[2] != "served"
        if key[0] not in self._metadata or not (is_search or isinstance(key[2], int)):
            return False
        if key[0] not in self._columns:
            self._columns[key[0]] = _columns(self._metadata[key[0]])
        now, by_snapshot = self._columns[key[0]]
        schemas = [*by_snapshot.values()] if is_search else [by_snapshot.get(key[2], now)]
        return any(now.get(name) != one.get(name) for name in re.findall(r"[a-z]\w*", str(key[1])) for one in schemas)


def _columns(place: str) -> tuple[Columns, dict[int, Columns]]:
    """Return the columns of a table by name, in the present schema and in that of each snapshot."""
    metadata = json.loads(Path(place.removeprefix("file:")).read_text())
    schemas = {
        schema["schema-id"]: {field["name"]: (field["id"], str(field["type"])) for field in schema["fields"]}
        for schema in metadata["schemas"]
    }
    now = schemas[metadata["current-schema-id"]]
    return now, {one["snapshot-id"]: schemas.get(one.get("schema-id"), now) for one in metadata["snapshots"]}


def as_this_code_answers(asked: Asked) -> tuple[Answer, list[str]]:
    """Return the answer of the other code after all rules, and the causes that changed it."""
    before, causes = asked.before, list[str]()
    for rule in RULES:
        changed = rule(replace(asked, before=before))
        if changed != before:
            before, causes = changed, [*causes, rule.__name__]
    return before, causes


def _some(answer: Answer, *names: str) -> Answer:
    return {name: answer[name] for name in names}


def _adds_up(answer: Answer) -> bool:
    funnel = answer["funnel"]
    dropped = sum(funnel["dropped"].values())
    because = sum(count for _, count in funnel["kept_because"])
    return bool(funnel["kept"] == len(answer["tasks"]) == because and funnel["kept"] + dropped == funnel["total"])


def _tasks(answer: Answer) -> list[Any]:
    found: list[Any] = answer["document"].get("file-scan-tasks", [])
    return found


def _but_residual(task: Answer) -> Answer:
    """Return a task without its residual, and without the places of its deletes in the document."""
    return {name: value for name, value in task.items() if name not in ("residual-filter", "delete-file-references")}


def _path(task: Any) -> str:
    return str(task["data-file"]["file-path"])


def _with_opaque_parts(before: Any, after: Any, name: str = "") -> Any:
    """Return a part of a document before with what is meant to be another one after."""
    if name == "partition" and before == []:
        return after
    if name == "term" and after == {"type": "transform", "transform": "identity", "term": before}:
        return after
    if isinstance(before, dict) and isinstance(after, dict):
        if before.get("type") == "or" and _any_row_of(before) and _of_bytes(after) == _any_row_of(before):
            return after
        return {key: _with_opaque_parts(value, after.get(key), key) for key, value in before.items()}
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [_with_opaque_parts(one, other) for one, other in zip(before, after, strict=True)]
    return before


def _any_row_of(node: Answer) -> str | None:
    """Return the column of a predicate that every row meets."""
    left, right = node.get("left"), node.get("right")
    is_any = isinstance(left, dict) and right == left | {"type": "not-null"} and left.get("type") == "is-null"
    return left["term"] if is_any and isinstance(left, dict) else None


def _of_bytes(node: Answer) -> str | None:
    """Return the column of a predicate whose literals are all bytes, written as digits of base 16."""
    term, literals = node.get("term"), node.get("values", [node.get("value")])
    column = term.get("term") if isinstance(term, dict) else None
    is_hex = all(isinstance(one, str) and re.fullmatch(r"(?:[0-9a-fA-F]{2})*", one) for one in literals)
    return column if is_hex else None
