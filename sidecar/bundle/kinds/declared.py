"""The one declaration of each index kind. Layers keep their own part of a kind in a table with the kind's name as key.

No code outside these tables asks which kind something is. It reads a fact of the declaration, or looks up its part.

When sidecar gets a new kind:

1. Write its blobs in a room of ``bundle/``, as ``bundle/sketches/`` does: a class to write one
   (:class:`~sidecar.bundle.field_parts.FieldPart`), a class to read one
   (:class:`~sidecar.bundle.field_blob.OpenedBlob`), and the piece kinds of its checksums in ``bundle/checksum.py``.
2. Add its blob types to ``puffin/types.py`` (also to ``_OURS``), their magics to ``bundle/envelope.py``, a row to
   :data:`KINDS` below, and the name to :data:`BuildKind`.
3. Add its part to each table:

   ===============================================  ==================================================================
   ``bundle/kinds/blob_forms.py``  ``BLOB_FORMS``    how a blob is opened, and its names in what ``inspect`` shows
   ``bundle/merging/merge.py``     ``MERGES``        how segments of the kind become one
   ``indexing/kinds.py``           ``PARTS``         what a build records of a unit, and when earlier indexes serve
   ===============================================  ==================================================================

4. A kind that answers conditions needs a stage that narrows the files of a plan (``planning/files/by_filters.py`` is
   one), or row groups and pages (``planning/files/by_row_groups.py``). A kind without answers needs none: no plan
   opens its blobs. A kind that data files have themselves (``in_files``) needs its way out of them and into them in
   ``conversion/`` and ``embedding/``.
5. Extend ``tests/bundle/test_kinds.py`` (it names each table that lacks the kind, and code that asks for a kind by its
   name), ``tests/bundle/merging`` (merged segments answer as their parts did), ``tests/indexing/test_carrying.py``,
   ``tests/test_hostile.py`` and ``spec_vectors/SPEC.md``, whose byte maps ``tests/bundle/test_spec.py`` checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sidecar.puffin.types import ORC_BLOOM, ROW_INDEX, SBBF, THETA_GROUPS
from sidecar.puffin.types import PAGE_INDEX as PAGE_INDEX_BLOB
from sidecar.questions.conditions import Compares, HasNaN, HasNull, HasValue, HoldsAny, LeafCondition, StartsWith

BuildKind: TypeAlias = Literal["bloom", "theta", "page-index"]
"""A kind of index that a build makes."""
IndexKind: TypeAlias = Literal["bloom", "page-index"]
"""A kind of index that data files have themselves, so that it can be moved out of them and into them."""

BLOOM: Final = "bloom"
THETA: Final = "theta"
PAGE_INDEX: Final = "page-index"


@dataclass(frozen=True)
class DeclaredKind:
    """What every layer knows of a kind. All of it is about one column, which blobs name by its field id."""

    name: BuildKind
    """The name in options, table properties, coverage and JSON."""
    what: str
    """One index of the kind, in messages and tables for people."""
    plural: str
    """Several of them."""
    takes: Literal["values", "entries"]
    """What a build takes from a column: its values (or the file's own filter of them), or the file's own entries."""
    blob_types: tuple[str, ...]
    """The types of its blobs. A new segment has one blob of a type and field at most."""
    answers: tuple[type[LeafCondition], ...]
    """The conditions that its indexes can rule out; empty for a kind that no plan asks."""
    merges: Literal["newest", "united"]
    """How segments with the same unit merge: the index of the newest segment that has one stays, or all that counted
    the unit's file are united."""
    in_files: bool
    """Whether data files have such indexes themselves: see :data:`IndexKind`."""
    usual: bool
    """Whether a build makes it unless other kinds are asked for."""


KINDS: dict[str, DeclaredKind] = {
    kind.name: kind
    for kind in (
        DeclaredKind(
            name=BLOOM,
            what="filter",
            plural="filters",
            takes="values",
            blob_types=(SBBF, ORC_BLOOM),
            answers=(HoldsAny,),
            merges="newest",
            in_files=True,
            usual=True,
        ),
        DeclaredKind(
            name=THETA,
            what="sketch",
            plural="sketches",
            takes="values",
            blob_types=(THETA_GROUPS,),
            answers=(),
            merges="united",
            in_files=False,
            usual=True,
        ),
        DeclaredKind(
            name=PAGE_INDEX,
            what="page index",
            plural="page indexes",
            takes="entries",
            blob_types=(PAGE_INDEX_BLOB, ROW_INDEX),
            answers=(Compares, HoldsAny, StartsWith, HasNull, HasValue, HasNaN),
            merges="newest",
            in_files=True,
            usual=False,
        ),
    )
}
"""The kinds by name, in the order in which people read them. Segments of later versions may have others."""

KIND_OF_BLOB: dict[str, DeclaredKind] = {blob: kind for kind in KINDS.values() for blob in kind.blob_types}
"""The kind of each type of blob that belongs to a field."""

BUILT_KINDS: tuple[BuildKind, ...] = tuple(kind.name for kind in KINDS.values())
USUAL_KINDS: tuple[BuildKind, ...] = tuple(kind.name for kind in KINDS.values() if kind.usual)
FILE_KINDS: tuple[IndexKind, ...] = (BLOOM, PAGE_INDEX)
"""The kinds that are declared as :attr:`DeclaredKind.in_files`."""


def is_asked(name: str) -> bool:
    """Return whether plans ask indexes of a kind. Kinds of later versions are not asked."""
    return name in KINDS and bool(KINDS[name].answers)


def is_united(name: str) -> bool:
    """Return whether indexes of a kind count the values of groups of files, see :attr:`DeclaredKind.merges`."""
    return name in KINDS and KINDS[name].merges == "united"
