"""Rebuilding a filter for another hash function, index rule or encoding: from what its values are known to be.

The bits of a filter say nothing about another hash, so the new filter needs the values. Three ways lead to
them, tried in this order; each gives *all* values of the chunk, so none loses a value:

``dictionary``  the entries of the dictionary page: every data page provably uses it
``domain``      each integer between the chunk's bounds that the old filter admits: the bounds are trusted, and the old
                filter denies no value of the chunk
``values``      the column's values

A domain is enumerated only if it is small. With the old filter's rate p, it admits about p of the absent numbers of
a domain of D: these *false extras* become members of the new filter, which so is never better than the old one
inside the domain, and as good as was asked for outside. :class:`DomainLimits` says how many are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sidecar.convert.outcome import DICTIONARY, DOMAIN, VALUES
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    Array = pa.Array[Any]

Numbers = npt.NDArray[np.int64]

_STEP = 1 << 16
"""Integers asked at a time: their hashes stay in the cache."""


class NewFilter(Protocol):
    """What a rebuild makes: any filter that can tell its rate."""

    def estimated_fpp(self) -> float:
        """The false-positive rate that its bits show."""


F = TypeVar("F", bound=NewFilter)
Build = Callable[[Iterable["Array"], int], F]
"""Makes a filter of arrays that together hold at most so many distinct values."""


@dataclass(frozen=True)
class Domain:
    """All integers that the chunk can hold, ``low`` to ``high``, and the old filter that knows which it may hold.

    ``admits`` asks the old filter for int64[n]: bool[n]. ``to_arrow`` gives numbers the type of the column.
    ``rate`` is the old filter's, ``values`` the number of values of the chunk, nulls left out.
    """

    low: int
    high: int
    admits: Callable[[Numbers], npt.NDArray[np.bool_]]
    to_arrow: Callable[[Numbers], Array]
    rate: float
    values: int

    @property
    def size(self) -> int:
        """How many integers there are."""
        return self.high - self.low + 1


class Evidence(Protocol):
    """What is known of the values of one filter. Each way answers with a text where it is closed, saying why."""

    def dictionary(self) -> list[Array] | str:
        """Every value at least once; other values do no harm."""

    def domain(self) -> Domain | str:
        """Bounds that certainly hold all values, and an old filter that certainly admits all of them."""

    def values(self) -> tuple[Iterator[Array], int] | str:
        """All values, and how many there are at most."""


@dataclass(frozen=True)
class DomainLimits:
    """How far a domain is enumerated: at most ``numbers`` integers (32 MiB of them), and at most ``extras`` false
    extras expected for each value that is there.
    """

    numbers: int = 1 << 22
    extras: float = 1.0


@dataclass(frozen=True)
class Rebuilt(Generic[F]):
    """A new filter and how it came about. Rates are estimated from the bits.

    ``closed``: the ways that were tried before, and why they were closed. Of a domain: its ``domain_size``, the
    numbers ``admitted``, and how many of these are false extras in expectation.
    """

    filter: F
    way: str
    rate_before: float | None
    rate_after: float
    closed: dict[str, str] = field(default_factory=dict)
    domain_size: int | None = None
    admitted: int | None = None
    expected_false_extras: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the filter."""
        return {name: value for name, value in vars(self).items() if name != "filter"}


def rebuild(
    evidence: Evidence,
    build: Build[F],
    *,
    rate_before: float | None = None,
    limits: DomainLimits = DomainLimits(),
) -> Rebuilt[F]:
    """The new filter by the first way that is open.

    Raises :class:`UnsupportedFeatureError` where none is, naming each reason; :class:`DamagedFileError` where the
    values cannot be decoded; :class:`sidecar.errors.StorageError`.
    """
    closed: dict[str, str] = {}
    entries = _open(evidence.dictionary, closed, DICTIONARY)
    if not isinstance(entries, str):
        made = build(entries, sum(map(len, entries)))
        return Rebuilt(made, DICTIONARY, rate_before, made.estimated_fpp())
    domain = _open(evidence.domain, closed, DOMAIN)
    if not isinstance(domain, str):
        numbers = enumerate_domain(domain, limits)
        if not isinstance(numbers, str):
            return _of_domain(domain, numbers, build, rate_before, closed)
        closed[DOMAIN] = numbers
    values = evidence.values()
    if isinstance(values, str):
        closed[VALUES] = values
        reasons = "; ".join(f"{way}: {reason}" for way, reason in closed.items())
        raise UnsupportedFeatureError(f"the filter cannot be rebuilt ({reasons})")
    made = build(*values)
    return Rebuilt(made, VALUES, rate_before, made.estimated_fpp(), closed)


A = TypeVar("A")


def _open(ask: Callable[[], A | str], closed: dict[str, str], way: str) -> A | str:
    """What a way has to offer. Damage closes it: the next one may do without the damaged bytes."""
    try:
        found = ask()
    except (DamagedFileError, UnsupportedFeatureError, UsageError) as error:
        found = error.what
    if isinstance(found, str):
        closed[way] = found
    return found


def _of_domain(
    domain: Domain, numbers: Numbers, build: Build[F], rate_before: float | None, closed: dict[str, str]
) -> Rebuilt[F]:
    parts = (domain.to_arrow(numbers[at : at + _STEP]) for at in range(0, len(numbers), _STEP))
    made = build(parts, len(numbers))
    return Rebuilt(
        made,
        DOMAIN,
        rate_before,
        made.estimated_fpp(),
        closed,
        domain.size,
        len(numbers),
        false_extras(domain, len(numbers)),
    )


def enumerate_domain(domain: Domain, limits: DomainLimits) -> Numbers | str:
    """Every integer of the domain that the old filter admits, rising; or why they are too many, or not certain.

    Both bounds are values of the chunk. An old filter that denies one of them is not the chunk's, or the
    bounds are not: then neither is believed.
    """
    if domain.size > limits.numbers:
        return f"the domain has {domain.size:,} integers, more than {limits.numbers:,}"
    if domain.rate * domain.size > limits.extras * (domain.values + 1):
        expected = round(domain.rate * domain.size)
        return f"about {expected:,} false extras are to be expected for at most {domain.values:,} values"
    if not domain.admits(np.array([domain.low, domain.high], np.int64)).all():
        return "the old filter denies a bound of the chunk"
    parts: list[Numbers] = []
    for first in range(domain.low, domain.high + 1, _STEP):
        asked = first + np.arange(min(_STEP, domain.high + 1 - first), dtype=np.int64)
        parts.append(asked[domain.admits(asked)])
    numbers = np.concatenate(parts)
    extras = false_extras(domain, len(numbers))
    if extras > limits.extras * (len(numbers) - extras):
        return f"about {round(extras):,} of the {len(numbers):,} admitted integers are false extras"
    return numbers


def false_extras(domain: Domain, admitted: int) -> float:
    """How many of the admitted integers are not in the chunk, in expectation.

    With n values there, the rate p admits p * (D - n) others: admitted = n + p * (D - n).
    """
    if domain.rate >= 1.0:
        return float(admitted)
    extras = domain.rate * (domain.size - admitted) / (1.0 - domain.rate)
    return min(extras, float(admitted))
