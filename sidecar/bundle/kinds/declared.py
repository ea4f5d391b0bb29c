"""The one declaration of each index kind. Layers keep their own part of a kind in a table with the kind's name as key.

Other code does not ask which kind something is: it reads a fact of the declaration, or looks up the part.

When sidecar gets a new kind:

1. Add the names of its blob types to ``puffin/types.py`` (also to ``_OURS``), their magics to
   ``bundle/envelopes/envelope.py``, the piece kinds of its checksums to ``bundle/envelopes/checksum.py``, its name to
   :data:`BuildKind`, a row to :data:`KINDS`.
2. Write its blobs in a room of ``bundle/``, as ``bundle/sketches/`` does: a class that writes what a segment has of a
   field (:class:`sidecar.bundle.field_parts.FieldPart`), and one that reads it
   (:class:`sidecar.bundle.field_blob.OpenedBlob`; if keys may open it, :class:`sidecar.bundle.field_blob.FieldBlob`).
   ``inspect``, ``verify`` of the structure and the copying of segments need no more. ``bundle/segment.py`` has a
   property for the opened blobs of each type. A new room has a row in ``ARCHITECTURE.md``.
3. Add its part to each table:

   * ``BLOB_FORMS`` in ``bundle/kinds/blob_forms.py``: how its blobs are opened, and what ``inspect`` calls them
   * ``MERGES`` in ``bundle/merging/checking.py``: how a segment of it is checked, and several become one. Its part can
     keep what is sound in :attr:`sidecar.bundle.merging.source_segment.CheckedSegment.others`. If the newest index
     stays, the part needs its own ``owners``: without one, merging loses the indexes
   * ``PARTS`` in ``indexing/kinds.py``: what a build records of a unit, and whether an earlier segment serves a file

4. Make it in a build. ``indexing/columns.py`` collects what is made of values: ``ColumnWork`` is given the values of a
   column and fills a ``ColumnResult``, and ``Options`` says which kinds are asked for. ``_column`` and ``_absent`` in
   ``indexing/stage_one/tasks.py`` put the result into the record of the column. A kind with records of its own needs
   ``collect`` and ``SegmentUnit.records`` in ``indexing/assemble.py`` too. ``indexing/groups.py`` makes the parts of
   the records, and ``Registrar.register`` in ``indexing/writing.py`` writes them.
   ``indexing/report.py`` and ``cli/build.py`` say in their own words what was built: ``add_stage_one`` takes the
   reason of a failed file from the record, and the help of ``--kinds`` names the kinds.
5. A kind that answers conditions must be asked. ``answers`` alone makes no plan ask it:

   * Lookups of values (:class:`sidecar.questions.conditions.HoldsAny`) need no new stage. Extend
     ``bundle/filter_answers.py``: ``may_hold`` asks a segment, and ``indexed_units`` says which of its units have an
     index. ``unsearched`` in ``iceberg/statistics_files/sidecar_files.py`` must return each segment with such an index.
     The reasons for files that are not indexed come from the coverage of filters (``states_without_filter``). Keys of
     joins and ``probe`` ask filters on their own. So does ``verify --data`` (``conversion/verify_values.py``), which
     must look the values up in the new index as well: nothing else finds one that denies a value of its file.
   * Other conditions need a stage that narrows files, such as ``planning/files/by_filters.py``, and its call in
     ``planning/files/choose.py``, or one that narrows row groups and pages, such as
     ``planning/files/by_row_groups.py``. ``questions/filter_questions.py`` leaves only lookups for filters.

   A kind without answers needs none of this: no plan reads its blobs. A kind that data files have themselves
   (``in_files``) needs ways out of them and into them (``conversion/``, ``embedding/``), and its name in
   :data:`IndexKind` and :data:`FILE_KINDS`.
6. Extend ``tests/bundle/test_kinds.py`` (it fails for each table that lacks the kind, and for code that asks for a kind
   by its name), a test of its blobs beside ``tests/bundle/test_group_sketches.py``, ``tests/bundle/merging`` (merged
   segments answer as their parts did), ``tests/indexing/test_carrying.py``, and ``spec_vectors/SPEC.md`` with
   ``spec_vectors/make_vectors.py`` (``tests/bundle/test_spec.py``). ``scripts/fuzzing/sidecar_reading.py`` reads all
   blobs of damaged files.
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
    """The conditions that its indexes can rule out; empty for a kind that no plan asks. Plans do not read this: the
    stages of a plan ask the indexes that they know."""
    merges: Literal["newest", "united"]
    """How segments with the same unit merge: the index of the newest segment that has one stays, or all that counted
    the unit's file are united."""
    in_files: bool
    """Whether data files have such indexes themselves: see :data:`IndexKind`."""
    status_has_bytes: bool
    """Whether ``status`` states the bytes of its blobs."""
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
            status_has_bytes=True,
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
            status_has_bytes=False,
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
            status_has_bytes=False,
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
