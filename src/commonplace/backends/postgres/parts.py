"""Which part of the tables holds a tenant, worked out here as PostgreSQL does it: a search then need not ask first.

PostgreSQL cannot change how it hashes without moving the rows of every divided table, so it does not. All the same it
is asked about some names when a book is opened, and where it disagrees, for the part of every namespace.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import psycopg

from commonplace.backends.postgres.place import Place

_WORD = 0xFFFFFFFF
_LONG = 0xFFFFFFFFFFFFFFFF
_SEED = 0x7A5B22367996DCFD
_COMBINED = 0x49A0F4DD15E5A8E3
_PROBES = ("", "user", "user/u-123", "user/ü-1234567890", "a-much-longer-tenant/of-more-than-two-twelves")


def count_parts(connection: psycopg.Connection[Any], place: Place) -> int | None:
    """How many parts there are, where this module finds them as the database does; else None."""
    namespace = f"{place.schema}.namespace"
    row = connection.execute(
        "SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass(%s)", (namespace,)
    ).fetchone()
    parts = int(row[0]) if row else 0
    if parts == 0:
        return None
    agrees = connection.execute(
        "SELECT bool_and(satisfies_hash_partition(to_regclass(%s), %s, part, tenant))"
        " FROM unnest(%s::int[], %s::text[]) AS probe (part, tenant)",
        (namespace, parts, [part_of(tenant, parts) for tenant in _PROBES], list(_PROBES)),
    ).fetchone()
    return parts if agrees and agrees[0] else None


@lru_cache(maxsize=10_000)
def part_of(tenant: str, parts: int) -> int:
    return ((_hashed(tenant.encode()) + _COMBINED) & _LONG) % parts


def _hashed(key: bytes) -> int:
    """Bob Jenkins's lookup3 with a seed: `hash_bytes_extended` of PostgreSQL."""
    a = b = c = (0x9E3779B9 + len(key) + 3923095) & _WORD
    a, b, c = _mixed((a + (_SEED >> 32)) & _WORD, (b + _SEED) & _WORD, c)
    whole = len(key) - len(key) % 12
    for at in range(0, whole, 12):
        a, b, c = _mixed(
            (a + int.from_bytes(key[at : at + 4], "little")) & _WORD,
            (b + int.from_bytes(key[at + 4 : at + 8], "little")) & _WORD,
            (c + int.from_bytes(key[at + 8 : at + 12], "little")) & _WORD,
        )
    rest = key[whole:]
    a = (a + int.from_bytes(rest[:4], "little")) & _WORD
    b = (b + int.from_bytes(rest[4:8], "little")) & _WORD
    c = (c + (int.from_bytes(rest[8:], "little") << 8)) & _WORD  # its lowest byte is the length's
    for turn in (14, 11, 25, 16, 4, 14, 24):
        a, b, c = b, ((c ^ b) - _turned(b, turn)) & _WORD, a
    return a << 32 | b


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for turn in (4, 6, 8, 16, 19, 4):
        a, b, c = b, (c + b) & _WORD, ((a - c) & _WORD) ^ _turned(c, turn)
    return a, b, c


def _turned(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & _WORD
