"""The cache of a limited weight."""

from __future__ import annotations

from sidecar.serving.planning.bounded_cache import BoundedCache
from sidecar.serving.planning.live_snapshot import ManifestCaches, ServedDeletes


def test_what_was_not_used_for_the_longest_time_leaves_first() -> None:
    made: list[str] = []
    cache: BoundedCache[str, str] = BoundedCache(5, len)

    def get(key: str) -> None:
        def make() -> str:
            made.append(key)
            return key

        assert cache.get(key, make) == key

    for key in ("aa", "bb", "aa", "cc", "aa", "bb"):
        get(key)
    assert made == ["aa", "bb", "cc", "bb"]
    get("heavier than all")
    get("heavier than all")
    get("bb")
    assert made[4:] == ["heavier than all"] * 2
    assert cache.weight == 4


def test_the_weight_stays_bounded() -> None:
    cache: BoundedCache[int, bytes] = BoundedCache(1000, len)
    for number in range(500):
        cache.get(number, lambda number=number: bytes(number % 90))  # type: ignore[misc]
        assert cache.weight <= 1000


def test_tables_without_deletes_do_not_fill_the_memory() -> None:
    """Each snapshot of such a table has an entry with nothing in it."""
    caches = ManifestCaches.of_size(1 << 20)
    for number in range(2000):
        caches.deletes.keep((number,), ServedDeletes([]))
        caches.delete_manifests.keep((number,), ())
        caches.lines.keep((number,), [])
    for kept in (caches.deletes, caches.delete_manifests, caches.lines):
        assert 0 < sum(kept.find((number,)) is not None for number in range(2000)) < 200
