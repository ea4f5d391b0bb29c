"""Rebuilds a filter for another hash function, index rule or encoding, from what is known about its values.

The bits of a filter say nothing about another hash, so the new filter needs the values. There are three ways to get
them, tried in this order. Each gives *all* values of the chunk, so the new filter denies none of them:

``dictionary``  the entries of the dictionary page, if every data page provably uses it
``domain``      each integer between the chunk's bounds that the old filter admits: the bounds are trusted, and the old
                filter denies no value of the chunk
``values``      the column's values

A domain is enumerated only if it is small. An old filter with rate p admits about p of the absent numbers of a domain
of D. These *false extras* become members of the new filter. So inside the domain the new filter is never better than
the old one; outside it has the rate that was asked for. :class:`DomainLimits` limits the false extras.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sidecar.conversion.outcome import DICTIONARY, DOMAIN, VALUES, Way
from sidecar.errors import DamagedFileError, UnsupportedFeatureError, UsageError
from sidecar.results import Summarized

if TYPE_CHECKING:
    import pyarrow as pa

    Array = pa.Array[Any]

Numbers = npt.NDArray[np.int64]

_STEP = 1 << 16
"""Integers that are looked up at a time: their hashes fit in the CPU cache."""


class NewFilter(Protocol):
    """The result of a rebuild: any filter that can estimate its rate."""

    def estimated_fpp(self) -> float:
        """Return the false-positive rate that its bits show."""


F = TypeVar("F", bound=NewFilter)
Build = Callable[[Iterable["Array"], int], F]
"""Builds a filter from arrays; the number is an upper limit of their distinct values together."""


@dataclass(frozen=True)
class Domain:
    """The integers ``low`` to ``high`` (included) that bound a chunk, with the old filter that says which may occur.

    ``admits`` looks int64[n] up in the old filter and returns bool[n]. ``to_arrow`` converts numbers to the column's
    type. ``rate`` is the old filter's false-positive rate, ``values`` the number of non-null values of the chunk.
    """

    low: int
    high: int
    admits: Callable[[Numbers], npt.NDArray[np.bool_]]
    to_arrow: Callable[[Numbers], Array]
    rate: float
    values: int

    @property
    def size(self) -> int:
        """The number of integers in the domain."""
        return self.high - self.low + 1


class Evidence(Protocol):
    """The evidence about the values of one filter. A way that is not possible returns a text that says why."""

    def dictionary(self) -> list[Array] | str:
        """Return arrays with every value at least once; extra values only add false positives."""

    def domain(self) -> Domain | str:
        """Return bounds that certainly contain all values, with an old filter that certainly admits all of them."""

    def values(self) -> tuple[Iterator[Array], int] | str:
        """Return all values, and an upper limit of their number."""


@dataclass(frozen=True)
class DomainLimits:
    """Limits of enumerating a domain: ``numbers`` is the most integers (32 MiB of them), ``extras`` the most false
    extras expected for each value of the chunk.
    """

    numbers: int = 1 << 22
    extras: float = 1.0


@dataclass(frozen=True, repr=False)
class Rebuilt(Summarized, Generic[F]):
    """A new filter and how it was built. Rates are estimated from the bits.

    ``closed``: the ways that were tried before, each with the reason why it was not possible. For the way ``domain``:
    ``domain_size``, the number of ``admitted`` integers, and how many of these are expected to be false extras.
    """

    filter: F
    """The new filter."""
    way: Way
    """Where its values come from."""
    rate_before: float | None
    """The false-positive rate of the old filter."""
    rate_after: float
    """The false-positive rate of the new filter."""
    closed: dict[str, str] = field(default_factory=dict)
    domain_size: int | None = None
    admitted: int | None = None
    expected_false_extras: float | None = None
    """The expected number of false extras."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the filter."""
        return {name: value for name, value in vars(self).items() if name != "filter"}


def rebuild(
    evidence: Evidence,
    build: Build[F],
    *,
    rate_before: float | None = None,
    limits: DomainLimits = DomainLimits(),
) -> Rebuilt[F]:
    """Build the new filter by the first way that is possible.

    Raises :class:`UnsupportedFeatureError` with each reason if no way is possible, :class:`DamagedFileError` if the
    values cannot be decoded, and :class:`sidecar.errors.StorageError`.
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
    """Try one way. Damage closes it, because the next way may not need the damaged bytes."""
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
    """Return every integer of the domain that the old filter admits, rising, as int64[n]; or why that is not possible.

    Both bounds are values of the chunk, so its filter admits them. If the old filter denies one of them, the filter or
    the bounds belong to other data, and neither is believed.
    """
    if domain.size > limits.numbers:
        return f"the domain has {domain.size:,} integers, more than {limits.numbers:,}"
    if domain.rate * domain.size > limits.extras * (domain.values + 1):
        expected = round(domain.rate * domain.size)
        return f"about {expected:,} false extras are expected for at most {domain.values:,} values"
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
    """Return the expected number of admitted integers that are not in the chunk.

    A chunk with n values and a filter with rate p admit n + p * (D - n) of the D integers. Solving for p * (D - n)
    gives the result.
    """
    if domain.rate >= 1.0:
        return float(admitted)
    extras = domain.rate * (domain.size - admitted) / (1.0 - domain.rate)
    return min(extras, float(admitted))
