"""Memory that acts by itself: a brief when a session starts, recall with each prompt, and the turns saved.

`Ambient` is the engine, on one space. `commonplace setup CLIENT --hooks` connects it to a client with hooks;
docs/guides/hooks.md says more.
"""

from commonplace.ambient.engine import BRIEF_TOKENS, RECALL_CHARACTERS, Ambient, Project, Session, project_of
from commonplace.ambient.turns import Transcript, Turn

__all__ = [
    "BRIEF_TOKENS",
    "RECALL_CHARACTERS",
    "Ambient",
    "Project",
    "Session",
    "Transcript",
    "Turn",
    "project_of",
]
