"""Memory that acts by itself, on one space: a brief for a new session, recall for a prompt, and saved turns.

What is put before a model is bounded, passes a floor of relevance, is never repeated in a session, and is marked as
data. The exception are standing instructions and preferences, which a person has confirmed. What is saved has its
secrets masked.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from commonplace.ambient.turns import Transcript, Turn, plain
from commonplace.checks import moment
from commonplace.entry import Hit
from commonplace.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from commonplace.language.relevance import calibration_of
from commonplace.language.transcripts import thread_id_of
from commonplace.redaction import Redactor
from commonplace.space.context import Budget, estimate_tokens, system_of
from commonplace.space.conversation import Thread
from commonplace.space.messages import MAX_MESSAGES, Message
from commonplace.space.names import FILE, MESSAGE, RECORD
from commonplace.space.records import Record, line_of, text_of
from commonplace.space.space import Space
from commonplace.space.titles import local_title
from commonplace.tools.as_data import as_data

BRIEF_TOKENS = 700
"""The most tokens of a brief, by our estimate, which is rather too high."""

STANDING_TOKENS = 350
"""How many of these standing instructions and preferences may take."""

RECALL_CHARACTERS = 1_500
RECALL_FLOOR = 0.3
"""The least relevance of what is recalled without being asked for. A search that somebody asked for has a lower floor:
there a reader sees what is noise; here it would stand before the model in every session."""

MOST_RECALLED = 6
MAX_TURN_CHARACTERS = 20_000
"""A saved turn may be a pasted log; its start is kept."""

_CANDIDATES = 20
_ITEM_CHARACTERS = 400
_LINE_CHARACTERS = 200
_QUERY_CHARACTERS = 1_200
_QUERY_END = 300
"""Of a longer prompt, the start and so much of the end are searched for, each by itself: what is asked stands before or
after what is pasted."""

_WORKING_CHARACTERS = 900
_MOST_LINES = 5
_MOST_THREADS = 100
_LEAST_WORDS = 3
_DECISION = "decision"
_SMALL_TALK = frozenset(
    (
        *(
            "yes",
            "no",
            "ok",
            "okay",
            "y",
            "n",
            "sure",
            "please",
            "do",
            "it",
            "go",
            "on",
            "continue",
            "next",
            "stop",
            "done",
        ),
        *(
            "proceed",
            "right",
            "good",
            "great",
            "thanks",
            "thank",
            "you",
            "fine",
            "cool",
            "perfect",
            "nice",
            "hi",
            "hello",
        ),
    )
)
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class Session:
    """A session of a client, in a project: what its model was shown, and how far its turns are saved."""

    id: str
    project: Path | None = None
    client: str = "session"
    shown: set[str] = field(default_factory=set)
    transcript: Transcript = field(default_factory=lambda: Transcript(""))

    @property
    def thread_id(self) -> str:
        return thread_id_of(self.client, self.id)

    @property
    def project_tag(self) -> str | None:
        """The tag that records of this project have."""
        name = "" if self.project is None else re.sub(r"[^a-z0-9_-]+", "-", self.project.name.lower()).strip("-")
        return f"project:{name[:90]}" if name else None


class Ambient:
    """The memory of one space, for sessions of any client. `redactor` masks what is saved."""

    def __init__(self, space: Space, redactor: Redactor | None = None) -> None:
        self._space = space
        self._redactor = Redactor("mask") if redactor is None else redactor

    def warm_up(self) -> None:
        """Load the model and the vectors before the first prompt needs them."""
        self._space.search("warm up", limit=1)

    # Before the first prompt

    def brief(self, session: Session | None = None, *, max_tokens: int = BRIEF_TOKENS) -> str:
        """What matters at the start: standing instructions, working memory, newest decisions, threads of the project.

        It is empty if there is nothing to say.
        """
        session = Session("") if session is None else session
        told = _Told(max_tokens, session.transcript)
        standing = self._space.records.standing()
        most = min(STANDING_TOKENS, max_tokens // 2, self._space.limits.standing_tokens)
        system = system_of(standing, (), Budget(None, estimate_tokens), most)
        told.instruct("\n".join(filter(None, (system.standing, *system.notices))))
        written = (system.standing or "").split("\n")
        session.shown.update(_record_name(record) for record in standing if f"- {line_of(record)}" in written)
        working = self._space.threads.working.read()
        if working is not None and working.content:
            content = working.content if isinstance(working.content, str) else _fields(working.content)
            told.add("Working memory:", [_cut(content.strip(), _WORKING_CHARACTERS)])
        decisions = [one for one in self._decisions(session) if _record_name(one) not in session.shown]
        lines = [f"- {_day(one.created_at)} {_cut(line_of(one), _LINE_CHARACTERS)}" for one in decisions]
        told.add("Newest decisions:", lines)
        session.shown.update(_record_name(one) for one, line in zip(decisions, lines, strict=True) if told.has(line))
        threads = [f"- {_day(one.updated_at)} {one.title}" for one in self._threads(session)]
        told.add("Recent conversations in this project:", threads)
        return told.text

    def _decisions(self, session: Session) -> Sequence[Record]:
        """The newest decisions of the project; without any, the newest of all."""
        records, tag = self._space.records, session.project_tag
        found = () if tag is None else records.list(type=_DECISION, tags=[tag], limit=_MOST_LINES).records
        return found or records.list(type=_DECISION, limit=_MOST_LINES).records

    def _threads(self, session: Session) -> list[Thread]:
        if session.project is None:
            return []
        project = str(session.project)
        page = self._space.threads.list(limit=_MOST_THREADS)
        found = [one for one in page.threads if one.metadata.get("project") == project and one.title]
        return [one for one in found if one.id != session.thread_id][:_MOST_LINES]

    # At each prompt

    def recall(self, prompt: str, session: Session | None = None, *, max_characters: int = RECALL_CHARACTERS) -> str:
        """The memories that are relevant to a prompt and new to its session, as one text; empty if there are none."""
        session = Session("") if session is None else session
        queries = [query for query in _queries(prompt.strip()) if _says_something(query)]
        if not queries:
            return ""
        session.transcript.hear(prompt)
        lines: list[str] = []
        said: list[str] = []
        for hit in self._found(queries):
            if len(lines) == MOST_RECALLED:
                break
            name, text = _hit_name(hit), plain(hit.entry.text or hit.snippet)
            if name in session.shown or not _is_relevant(hit) or not self._is_new(hit, session):
                continue
            if any(text in other or other in text for other in said):  # a model repeats what it was told
                continue
            longer = [*lines, self._line(hit)]
            if len(_recalled(longer)) <= max_characters:
                lines = longer
                said.append(text)
                session.shown.add(name)
        return _recalled(lines) if lines else ""

    def _found(self, queries: Sequence[str]) -> list[Hit]:
        """The hits of all queries, each once, the best first."""
        best: dict[tuple[str, str], Hit] = {}
        for query in queries:
            for hit in self._space.search(query, limit=_CANDIDATES, min_relevance=RECALL_FLOOR):
                known = best.get((hit.kind, hit.key))
                if known is None or known.score < hit.score:
                    best[hit.kind, hit.key] = hit
        return sorted(best.values(), key=lambda hit: -hit.score) if len(queries) > 1 else [*best.values()]

    def _is_new(self, hit: Hit, session: Session) -> bool:
        text = hit.entry.text or hit.snippet
        if hit.kind == MESSAGE and hit.entry.attributes.get("threadId") == session.thread_id:
            return False
        if hit.kind == MESSAGE and len(_WORD.findall(text)) < _LEAST_WORDS:
            return False
        shown = text if len(text) <= _ITEM_CHARACTERS else hit.snippet.strip("… \n")
        return not session.transcript.holds(shown)

    def _line(self, hit: Hit) -> str:
        attributes = cast("Mapping[str, Any]", hit.entry.attributes)
        text = hit.entry.text or hit.snippet
        is_whole = len(text) <= _ITEM_CHARACTERS
        said = " ".join((text if is_whole else hit.snippet).split())
        said = _cut(said, _ITEM_CHARACTERS)
        kind = attributes["type"] if hit.kind == RECORD else attributes["role"] if hit.kind == MESSAGE else hit.key
        rest = f" (shortened, id {hit.key})" if not is_whole and hit.kind != FILE else ""
        line = f"- {_day(moment(hit.entry.created_at))} {kind}: {said}{rest}"
        if hit.kind == MESSAGE and attributes["role"] == "user" and text.rstrip().endswith("?"):
            line += self._reply(hit.key)
        return line

    def _reply(self, id: str) -> str:
        """What was answered to a question, which alone would tell nothing."""
        try:
            after = self._space.threads.around(id, before=0, after=1)[1:]
        except NotFound:
            return ""
        said = [message for message in after if message.role == "assistant" and isinstance(message.content, str)]
        return "".join(f"\n  assistant: {_cut(' '.join(str(one.content).split()), _LINE_CHARACTERS)}" for one in said)

    # Afterwards

    def save(self, session: Session, turns: Sequence[Turn]) -> int:
        """Save turns to the thread of their session, each once; return how many are new."""
        turns = [turn for turn in turns if turn.text.strip()]
        if not turns:
            return 0
        messages = [self._message(turn) for turn in turns]
        self._ensure_thread(session, turns)
        return sum(
            self._add(session.thread_id, messages[start : start + MAX_MESSAGES])
            for start in range(0, len(messages), MAX_MESSAGES)
        )

    def _message(self, turn: Turn) -> dict[str, object]:
        # Cut afterwards: no detector knows a secret by its first half.
        text = _cut(self._redactor.text(turn.text), MAX_TURN_CHARACTERS)
        message: dict[str, object] = {"id": turn.id, "role": turn.role, "content": text}
        return message if turn.time is None else {**message, "createdAt": turn.time}

    def _ensure_thread(self, session: Session, turns: Sequence[Turn]) -> None:
        threads = self._space.threads
        try:
            threads.get(session.thread_id)
        except NotFound:
            first = next((turn.text for turn in turns if turn.role == "user"), turns[0].text)
            metadata = {"client": session.client, "project": None if session.project is None else str(session.project)}
            try:
                threads.create(
                    local_title(self._redactor.text(first)),
                    id=session.thread_id,
                    metadata={name: value for name, value in metadata.items() if value is not None},
                )
            except AlreadyExists:  # another process was faster
                return

    def _add(self, thread_id: str, messages: Sequence[Mapping[str, object]]) -> int:
        threads = self._space.threads
        known = {message["id"] for message in messages if self._has(cast("str", message["id"]))}
        new = [message for message in messages if message["id"] not in known]
        if not new:
            return 0
        try:
            return len(threads.add(thread_id, new))
        except Conflict:  # another process saved some of them since
            return sum(self._add_one(thread_id, message) for message in new)

    def _add_one(self, thread_id: str, message: Mapping[str, object]) -> int:
        try:
            return len(self._space.threads.add(thread_id, [message]))
        except Conflict:
            return 0

    def _has(self, id: str) -> bool:
        """Whether a message is saved, in any thread: a resumed session repeats the turns of the first one."""
        try:
            found: Message = self._space.threads.get_message(id)
        except NotFound:
            return False
        return found.id == id


class _Told:
    """A brief in the making, within a budget of tokens, without what the conversation has already."""

    def __init__(self, max_tokens: int, known: Transcript) -> None:
        if not 50 <= max_tokens <= 100_000:
            raise InvalidInput(f"max_tokens must be from 50 to 100,000, not {max_tokens}")
        self._max_tokens = max_tokens
        self._known = known
        self._standing = ""
        self._data: list[str] = []

    def instruct(self, text: str) -> None:
        """What the model is to follow: only what a person has confirmed."""
        if text and not self._known.holds(text):
            self._standing = text

    def add(self, heading: str, lines: Sequence[str]) -> None:
        """Add as many lines as fit, under a heading."""
        written = [heading]
        for line in lines:
            if self._known.holds(line):
                continue
            if estimate_tokens(self._written([*self._data, *written, line])) > self._max_tokens:
                break
            written.append(line)
        if len(written) > 1:
            self._data += written

    def has(self, line: str) -> bool:
        return line in self._data

    @property
    def text(self) -> str:
        return self._written(self._data)

    def _written(self, data: Sequence[str]) -> str:
        return "\n\n".join(filter(None, (self._standing, as_data("\n".join(data)) if data else "")))


def _recalled(lines: Sequence[str]) -> str:
    return as_data("\n".join(lines))


def _is_relevant(hit: Hit) -> bool:
    """Whether a hit passes the floor by itself. A search keeps some hits for their words or their names alone."""
    keywords = calibration_of(None)
    relevance = hit.relevance
    if relevance is None and keywords is not None:  # the model has no calibration
        relevance = keywords.relevance(hit.parts.get("keyword", 0.0), 0.0)
    return relevance is not None and relevance >= RECALL_FLOOR


def _queries(prompt: str) -> list[str]:
    if len(prompt) <= _QUERY_CHARACTERS:
        return [prompt]
    end = prompt[-_QUERY_END:]
    whole_lines = end.partition("\n")[2].strip()
    return [prompt[: _QUERY_CHARACTERS - _QUERY_END], whole_lines or end]


def _says_something(prompt: str) -> bool:
    """Whether a prompt can be about something: not a command of the client, and more than `yes, go on`."""
    if prompt.startswith(("/", "!", "#")) and "\n" not in prompt and " " not in prompt:
        return False
    words = plain(prompt)
    return any(word not in _SMALL_TALK for word in _WORD.findall(words))


def _hit_name(hit: Hit) -> str:
    """A memory as it is now: one that was changed since is another one."""
    return _name(hit.kind, hit.key, hit.entry.text or hit.snippet)


def _record_name(record: Record) -> str:
    return _name(RECORD, record.id, text_of(record.content))


def _name(kind: str, key: str, text: str) -> str:
    return f"{kind} {key} {sha256(text.encode()).hexdigest()[:12]}"


def _fields(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, default=dict)


def _day(time: datetime) -> str:
    return time.date().isoformat()


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


# Where it is turned off

SWITCHES = "commonplace.toml"
NO_MEMORY = ".nomemory"
_MAX_SWITCHES_BYTES = 100_000
_MAX_PATH_CHARACTERS = 4_096
"""No system has longer paths, and each folder above is looked at."""


@dataclass(frozen=True, slots=True)
class Project:
    """The project of a folder, and what the memory may do there."""

    root: Path
    recalls: bool = True
    saves: bool = True


def project_of(folder: str | Path) -> Project:
    """The project that a folder belongs to: the nearest folder above with `.git` or our files, or the folder itself.

    A file `.nomemory` in it or above turns everything off there. `commonplace.toml` can turn off parts; it only
    turns off, because anybody's repository may contain one. One that cannot be read turns everything off. Links are
    followed too, and nothing is recalled or saved in a folder without a whole path.
    """
    start = Path(folder)
    if "\0" in str(folder) or len(str(folder)) > _MAX_PATH_CHARACTERS:
        return Project(start, recalls=False, saves=False)
    root: Path | None = None
    recalls = saves = start.is_absolute()
    real = Path(os.path.realpath(start))
    for one in dict.fromkeys((start, *start.parents, real, *real.parents)):
        if (one / NO_MEMORY).exists():
            recalls = saves = False
        allowed = _switches(one / SWITCHES)
        recalls, saves = recalls and allowed[0], saves and allowed[1]
        if root is None and any((one / name).exists() for name in (".git", SWITCHES, NO_MEMORY)):
            root = one
    return Project(root or start, recalls, saves)


def _switches(file: Path) -> tuple[bool, bool]:
    """Whether the file allows recall and saving."""
    import tomllib

    try:
        with file.open("rb") as stream:
            written = stream.read(_MAX_SWITCHES_BYTES + 1)
    except FileNotFoundError:
        return True, True
    except OSError:
        return (True, True) if not file.exists() else (False, False)
    try:
        said = tomllib.loads(written.decode()) if len(written) <= _MAX_SWITCHES_BYTES else {"ambient": False}
    except (ValueError, RecursionError):
        return False, False
    ambient: object = said.get("ambient", {})
    if not isinstance(ambient, Mapping):
        return (True, True) if ambient is True else (False, False)
    return ambient.get("recall", True) is True, ambient.get("save", True) is True
