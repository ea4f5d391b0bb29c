"""Plans the indexes of one file, whatever its format: read from the sidecar, or built from values.

The order of the steps matters for safety: :func:`plan_restore` matches the file, :meth:`IndexRestorer.load` waits for
the proof, reads the indexes and compares them with values, and only then they are written into the file. An index that
is denied or cannot be read is built from the values instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sidecar.access import Access
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.model import UnitState
from sidecar.conversion.filter_pool import FilterPool, PooledFilters
from sidecar.conversion.matching.identity import Identity, identity_of
from sidecar.conversion.matching.match import Finder, Match, prove
from sidecar.conversion.matching.witness import UNPROVEN, Witness
from sidecar.conversion.restore import coverage, every_part, newest_parts
from sidecar.data_files.chunk_check import ChunkCheck
from sidecar.data_files.open_file import OpenFile
from sidecar.embedding.report import EmbedReport
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.results.choices import Placement
from sidecar.storage.target import Target

UNREADABLE = "the sidecar's index for it cannot be read"

LARGE_BUNDLE = 64 << 20
"""The most bytes of other files' filters that are read to restore a plain file's filters byte for byte."""

FileT = TypeVar("FileT", bound=OpenFile)
LoadedT = TypeVar("LoadedT")
Place = tuple[int, int]
"""Row group, number of the leaf."""


@dataclass(frozen=True)
class RestoreChoice:
    """The indexes to restore: ``bloom`` and ``page_index`` name leaves, ``None`` means all of them.

    ``is_shared``: the sidecar is read once for many files, so its filters are taken whatever they cost one of them.
    """

    bloom: Sequence[str] | None = None
    page_index: Sequence[str] | None = None
    placement: Placement = "end"
    is_shared: bool = False


@dataclass
class RestorePlan(Generic[FileT]):
    """The restore of one file: what the sidecar has for it, and which leaves are built from values instead.

    ``matches`` lack the proof that takes all data of the file. ``parts`` may be filters that the file cannot hold.
    """

    file: FileT
    identity: Identity
    matches: list[Match]
    parts: list[PooledFilters]
    from_values: dict[int, str] = field(default_factory=dict)
    """The reason by number of the leaf."""

    @property
    def exact_parts(self) -> list[PooledFilters]:
        """The parts that are read from the sidecar."""
        return [p for p in self.parts if p.column not in self.from_values and self.file.can_hold(p.group.rule)]

    @property
    def fpp(self) -> float:
        """The target rate of filters that are built from values: that of the sidecar's filters."""
        return min((p.bundle.toc.fpp for p in self.parts if p.bundle.toc.fpp is not None), default=DEFAULT_FPP)


def plan_restore(finder: Finder, file: FileT, choice: RestoreChoice) -> RestorePlan[FileT]:
    """Find what the sidecar has for a file, and decide which leaves are cheaper to build from values.

    Raises :class:`UsageError` if the sidecar does not list the file, and for unknown columns, and
    :class:`UnsupportedFeatureError` for a file that cannot be rewritten.
    """
    file.check_embeddable()
    identity = identity_of(file)
    matches = finder.look_up(identity)
    wanted = None if choice.bloom is None else {file.number_of(name) for name in choice.bloom}
    found = [part for part in every_part(matches, file) if wanted is None or part.column in wanted]
    # A filter that the file cannot hold counts only if there is none that it can hold.
    held = [part for part in found if file.can_hold(part.group.rule) and file.fits(part.leaf, part.group)]
    plan = RestorePlan(
        file, identity, matches, newest_parts([*(p for p in found if not file.can_hold(p.group.rule)), *held])
    )
    by_leaf: dict[int, list[PooledFilters]] = defaultdict(list)
    for part in plan.exact_parts:
        by_leaf[part.column].append(part)
    for leaf, parts in by_leaf.items():
        reason = "" if choice.is_shared else _why_values(file, parts, proof_of(matches))
        if reason:
            plan.from_values[leaf] = reason
    # The coverage says which filters should be there. One that is *indexed* but has no part is in a damaged bundle, so
    # it is built from values instead of being silently lost.
    places = {(unit, part.column) for part in plan.parts for unit in part.units}
    for unit, lost, state in coverage(matches, file, BLOOM):
        is_wanted = wanted is None or lost.index in wanted
        if state == UnitState.INDEXED and is_wanted and (unit, lost.index) not in places:
            plan.from_values.setdefault(lost.index, UNREADABLE)
    return plan


def proof_of(matches: Sequence[Match]) -> str:
    """Return the proof that a file is the one that was indexed; an empty text if any segment lacks a proof."""
    return matches[0].proof if all(match.is_proven for match in matches) else ""


def _why_values(file: OpenFile, parts: Sequence[PooledFilters], proof: str) -> str:
    """Return why the filters of a leaf are built from its values; an empty text if they are read from the sidecar.

    Without a proof all values of a table's file are read anyway, so its filters are built from them.
    """
    leaf = parts[0].leaf
    if not file.may_have_new_filters(leaf):
        return ""
    bundle, units = sum(part.group.length for part in parts), {unit for part in parts for unit in part.units}
    having = [number for number in range(file.parts) if not units.isdisjoint(file.part_units(number))]
    values = sum(file.values_size(number, leaf) for number in having)
    if bundle > allowed_bytes(parts, values):
        return f"{values:,} bytes of values cost less than {bundle:,} bytes of the bundle"
    return "" if proof or parts[0].match.is_plain else UNPROVEN


def allowed_bytes(parts: Sequence[PooledFilters], values: int) -> float:
    """Return the most bytes of a bundle that are read to restore these filters byte for byte."""
    own = sum(len(part.units) / part.group.members * part.group.length for part in parts)
    return max(LARGE_BUNDLE + own, values) if parts[0].match.is_plain else values


class IndexRestorer(ABC, Generic[FileT, LoadedT]):
    """Gives one file its indexes. Close it.

    One thread calls :meth:`load`, another writes the file and waits for it. So pages are copied while indexes are read,
    and while ``provers`` find out whether the file is the one that was indexed, which may take their digest.
    """

    def __init__(self, plan: RestorePlan[FileT], choice: RestoreChoice, pool: FilterPool, provers: Executor) -> None:
        self.plan, self._source = plan, plan.file.source
        self._choice = choice
        self._pool = pool
        self._loaded: Future[LoadedT] = Future()
        self.damage: list[str] = []
        """Parts of the sidecar that could not be read or are not believed."""
        self.witness = Witness()
        self.proven = provers.submit(prove, plan.identity, plan.matches)
        """The matches with their proofs."""

    @abstractmethod
    def write(self, access: Access, target: Target, start: float) -> EmbedReport:
        """Wait until :meth:`load` is done, and write the file to the empty ``target``. Work began at ``start``."""

    @abstractmethod
    def _load(self) -> LoadedT:
        """Return what the file gets, without what its values deny or cannot confirm."""

    def load(self, load_filters: Callable[[], None]) -> None:
        """Read what the file needs from the sidecar. The thread that writes then continues, or fails too."""
        try:
            load_filters()
            plan = self.plan
            plan.matches = self.proven.result()
            self.witness = Witness(proof_of(plan.matches))
            for part in plan.exact_parts:
                error = self._pool.failure(part)
                if error is not None:
                    plan.from_values[part.column] = f"{UNREADABLE}: {error.what}"
                    self.damage.append(str(error))
            loaded = self._load()
        except BaseException as error:
            self._loaded.set_exception(error)
            raise
        self._loaded.set_result(loaded)

    def _doubtful(self, places: set[Place], checks: Iterable[tuple[Place, ChunkCheck]]) -> set[Place]:
        """Return those of ``places`` whose indexes are not used, because values deny them or could not confirm them.

        Their filters are built from values instead, those of a leaf all together.
        """
        witness, plan, doubtful = self.witness, self.plan, set[Place]()
        paths = {leaf.index: leaf.own_path for leaf in plan.file.leaves}
        for (unit, leaf), check in checks:
            witness.add(paths[leaf], unit, check)
            if check.not_compared and not witness.proof:
                doubtful.add((unit, leaf))
        # One denied value means that the sidecar has another file's indexes: none of them is believed then.
        if witness.contradictions:
            doubtful = places
        if doubtful:
            reason, denied = witness.why_not_used(), {leaf for _, leaf in doubtful}
            plan.from_values.update({part.column: reason for part in plan.exact_parts if part.column in denied})
            self.damage += [f"{reason}: {text}" for text in witness.contradictions or witness.not_compared]
        return doubtful

    def close(self) -> None:
        """Stop reading the source, which its owner closes."""
        self.proven.cancel()
        wait([self.proven])

    def give_up(self, error: BaseException) -> None:
        """Make a thread that waits for :meth:`load` fail with ``error``, because it will not be called any more."""
        self._loaded.set_exception(error)
