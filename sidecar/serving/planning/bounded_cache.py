"""A cache of limited weight, for threads. The entries that were not used for the longest time leave first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps values whose weights sum up to at most ``most``. A heavier value is not kept.

    ``weigh`` counts the entry as well: values without a weight would stay for ever.
    """

    def __init__(self, most: int, weigh: Callable[[V], int]) -> None:
        self.most = most
        self._weigh = weigh
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key; ``make`` makes it if it is missing, at times in two threads at once."""
        found = self.find(key)
        if found is None:
            found = make()
            self.keep(key, found)
        return found

    def find(self, key: K) -> V | None:
        """Return the value of a key; ``None`` if it is missing."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def take(self, key: K) -> V | None:
        """Return the value of a key and keep it no longer; ``None`` if it is missing."""
        with self._lock:
            value, weight = self._entries.pop(key, (None, 0))
            self._weight -= weight
            return value

    def keep(self, key: K, value: V) -> bool:
        """Keep a value, unless the key has one or the value is too heavy. Return whether it is kept."""
        weight = self._weigh(value)
        with self._lock:
            if weight > self.most or key in self._entries:
                return False
            self._entries[key] = value, weight
            self._weight += weight
            while self._weight > self.most:
                _, (_, left) = self._entries.popitem(last=False)
                self._weight -= left
            return True

    @property
    def weight(self) -> int:
        """The sum of the weights of all values."""
        return self._weight
