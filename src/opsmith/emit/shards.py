"""Which generated file holds which operator.

Files are of a size that can be read; the build compiles many of them together.  The choice depends on an
operator's own name and on the order of magnitude of the whole: a new line in a manifest rewrites one file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

Item = TypeVar("Item")

FUNCTIONS_PER_SHARD = 64
DIFFERENTIABLE_PER_SHARD = 16


def sharded(items: Iterable[tuple[str, Item]], size: int) -> Mapping[int, list[Item]]:
    """The items by number of shard, in the order given; only shards that hold any.

    Each comes with the name by which it is placed: equal names stand together.  ``size`` is how many a
    shard holds on average, at most.
    """
    named = list(items)
    # A power of two, so that growing beyond it splits each shard and mixes none; in large steps, so that few
    # backends with the same libraries are on two sides of one.
    count = 1
    while count * size < len(named):
        count *= 8
    shards: dict[int, list[Item]] = {}
    for name, item in named:
        shards.setdefault(zlib.crc32(name.encode()) % count, []).append(item)
    return dict(sorted(shards.items()))
