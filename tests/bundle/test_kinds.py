"""Each index kind is declared once: every layer's table has its part, and no other code asks for a kind by its name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from sidecar.bundle.kinds import declared
from sidecar.bundle.kinds.blob_forms import BLOB_FORMS
from sidecar.bundle.kinds.declared import BUILT_KINDS, FILE_KINDS, KIND_OF_BLOB, KINDS, BuildKind, IndexKind
from sidecar.bundle.merging.checking import MERGES
from sidecar.bundle.sidecar_file import MAGICS
from sidecar.indexing.kinds import PARTS
from sidecar.puffin.types import UNITS, is_ours
from sidecar.questions.conditions import LeafCondition
from tests.syntax import tree_of

PACKAGE = Path(declared.__file__).parents[2]
NAMES = {*KINDS, *KIND_OF_BLOB}
CONSTANTS = {"BLOOM", "THETA", "PAGE_INDEX", "SBBF", "ORC_BLOOM", "ROW_INDEX", "THETA_GROUPS", "PAGE_INDEX_BLOB"}
OWN_PARTS = {
    ("bundle/merging/merged_sketches.py", "entry.blob_type == THETA_GROUPS"),
    ("indexing/writing.py", "entry.blob_type == THETA_GROUPS"),
    ("iceberg/statistics_files/write_statistics.py", "blob.type == PAGE_INDEX"),
    ("embedding/restorer.py", "kind == PAGE_INDEX"),
    ("embedding/report.py", "o.kind == BLOOM"),
    ("cli/draw/puffin.py", "kind == 'theta'"),
}
"""Comparisons in code that is about one kind anyway: it looks for its blobs, or for its outcomes, among others."""
REGISTERED = "sidecar.puffin.types.THETA"
"""The type of blobs that tables register. It is the format's, and no kind of ours has such blobs in a segment."""


@pytest.mark.parametrize("table", [MERGES, PARTS], ids=["merging", "indexing"])
def test_each_layer_has_its_part_of_each_kind(table: dict[str, object]) -> None:
    assert table.keys() == KINDS.keys()


def test_each_type_of_blob_can_be_opened_and_belongs_to_one_kind() -> None:
    assert BLOB_FORMS.keys() == KIND_OF_BLOB.keys()
    assert sum(len(kind.blob_types) for kind in KINDS.values()) == len(KIND_OF_BLOB)
    assert all(is_ours(blob_type) for blob_type in BLOB_FORMS)
    assert MAGICS.keys() - BLOB_FORMS.keys() == {UNITS}
    assert len(set(MAGICS.values())) == len(MAGICS)
    assert len({form.shown_as for form in BLOB_FORMS.values()}) == len(BLOB_FORMS)


def test_the_names_that_options_take_are_those_that_are_declared() -> None:
    assert get_args(BuildKind) == BUILT_KINDS
    assert get_args(IndexKind) == FILE_KINDS == tuple(kind.name for kind in KINDS.values() if kind.in_files)


def test_answers_are_conditions_without_parts() -> None:
    assert {answer for kind in KINDS.values() for answer in kind.answers} <= set(get_args(LeafCondition))


def imported(tree: ast.Module) -> dict[str, str]:
    """The full name of each name that a module imports."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def asks_for_a_kind(tree: ast.Module) -> set[str]:
    """The comparisons of a module with the name of a kind or a type of its blobs."""
    names = imported(tree)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            for side in (node.left, *node.comparators):
                is_name = isinstance(side, ast.Name) and side.id in CONSTANTS and names.get(side.id) != REGISTERED
                if is_name or (isinstance(side, ast.Constant) and side.value in NAMES):
                    found.add(ast.unparse(node))
    return found


def test_no_code_asks_for_a_kind_by_its_name() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), text)
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in asks_for_a_kind(tree_of(path))
    }
    assert found - OWN_PARTS == set()
    assert OWN_PARTS - found == set(), "no longer there: take it off the list"


@pytest.mark.parametrize("code", ["kind == BLOOM", "if kind != 'theta': pass", "blob.type == SBBF"])
def test_a_comparison_with_a_kind_is_found(code: str) -> None:
    assert asks_for_a_kind(ast.parse(code))
