"""Where a book lies: the address of its database, its schema there, and how to reach it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from commonplace.errors import ConfigurationError

DEFAULT_SCHEMA = "commonplace"
PARTITIONS = 16


@dataclass(frozen=True, slots=True)
class Place:
    """A database, the schema in it that is ours alone, and the two roles under which everything is done there."""

    conninfo: str
    schema: str = DEFAULT_SCHEMA
    partitions: int = PARTITIONS
    """How many parts the tables get when they are made; later it is what it was then."""

    @property
    def app_role(self) -> str:
        """Sees the rows of one tenant at a time."""
        return f"{self.schema}_app"

    @property
    def system_role(self) -> str:
        """Owns the tables: migration, indexing, listings over tenants, copies."""
        return f"{self.schema}_system"

    @property
    def shown(self) -> str:
        """The address without its password, for messages."""
        parts = urlsplit(self.conninfo)
        host = parts.netloc.rpartition("@")[2]
        return f"postgresql://{host}{parts.path} (schema {self.schema})"


def parse_url(url: str) -> Place:
    """Read an address; `?schema=` and `?partitions=` are ours, everything else goes to the driver."""
    parts = urlsplit(url)
    ours = {"schema": DEFAULT_SCHEMA, "partitions": str(PARTITIONS)}
    others = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ours:
            ours[name] = value
        else:
            others.append((name, value))
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,49}", ours["schema"]):
        raise ConfigurationError(
            f"schema={ours['schema']!r} in the database's address: use lower-case letters, digits and _, at most 50"
        )
    if not ours["partitions"].isdecimal() or not 1 <= int(ours["partitions"]) <= 1_024:
        raise ConfigurationError(f"partitions={ours['partitions']!r} in the database's address must be 1 to 1024")
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(others), ""))
    return Place(conninfo, ours["schema"], int(ours["partitions"]))
