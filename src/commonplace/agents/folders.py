"""Agent folders: `{name-slug}-{uuid}` below one base folder, each with the agent's `memory.db`.

An agent id is a UUID; anything else is refused before the file system is looked at.
"""

from __future__ import annotations

import os
import re
import unicodedata
import uuid
from pathlib import Path

from commonplace.checks import check_line, check_visible
from commonplace.errors import ConfigurationError, InvalidInput, NotFound

DATABASE = "memory.db"
MAX_NAME_BYTES = 400
MAX_SLUG_CHARACTERS = 60
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")


def check_agent_id(agent_id: object) -> str:
    """An agent id as it is stored, in small letters."""
    if not isinstance(agent_id, str) or not _UUID.fullmatch(agent_id):
        raise InvalidInput(
            f"an agent id is a UUID such as a1b2c3d4-e5f6-7890-abcd-ef1234567890, not {agent_id!r:.100}; "
            "create_agent gives one"
        )
    return agent_id.lower()


def slug_of(name: str) -> str:
    """A name as the first part of a folder's: `Café Helper!` is `cafe-helper`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = _BETWEEN_WORDS.sub("-", plain).strip("-")
    return slug[:MAX_SLUG_CHARACTERS].strip("-") or "agent"


def new_agent(name: str) -> tuple[str, str]:
    """An id for a new agent, and the name of its folder."""
    if not check_line("an agent's name", name, max_bytes=MAX_NAME_BYTES).strip():
        raise InvalidInput("an agent's name must not be blank")
    check_visible("an agent's name", name)
    agent_id = str(uuid.uuid4())
    return agent_id, f"{slug_of(name)}-{agent_id}"


def not_found(agent_id: str) -> NotFound:
    return NotFound(f"Agent folder not found for agentId: {agent_id}")


def is_there(path: Path) -> bool:
    """Whether a file is there. In a folder that is closed to us nobody knows: that is an error, not an absence."""
    try:
        return path.exists()
    except OSError as error:
        raise _closed(error) from error


def _closed(error: OSError) -> ConfigurationError:
    return ConfigurationError(f"cannot reach {error.filename}: {error.strerror}; check the permissions")


class AgentFolders:
    """The folders of agents below a base folder."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def create(self, name: str) -> str:
        """Make a new agent's folder, and the base folder where it is missing; the agent's id."""
        agent_id, folder = new_agent(name)
        self._make_base()
        try:
            (self.base / folder).mkdir(mode=0o700)
        except OSError as error:
            raise ConfigurationError(f"cannot make {self.base / folder}: {error.strerror}; check the folder") from error
        return agent_id

    def name_of(self, agent_id: object) -> str | None:
        """The name of an agent's folder, or None; it never raises."""
        try:
            return self._scan(check_agent_id(agent_id))
        except (InvalidInput, OSError):
            return None

    def locate(self, agent_id: str) -> Path:
        """Where an agent's database is, or is to be made. Makes the base folder; raises where no folder matches."""
        self._make_base()
        try:
            folder = self._scan(agent_id)
        except OSError as error:
            raise _closed(error) from error
        if folder is None:
            raise not_found(agent_id)
        return self.base / folder / DATABASE

    def _scan(self, agent_id: str) -> str | None:
        if not self.base.is_dir():
            return None
        with os.scandir(self.base) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if entry.name.lower().endswith(f"-{agent_id}") and entry.is_dir(follow_symlinks=False)
            )
        if len(names) < 2:
            return names[0] if names else None
        # Of several, such as a renamed copy, the one that remembers something.
        return next((name for name in names if (self.base / name / DATABASE).exists()), names[0])

    def _make_base(self) -> None:
        try:
            self.base.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot make the agents' folder {self.base}: {error.strerror}; set COMMONPLACE_AGENTS to another"
            ) from error
