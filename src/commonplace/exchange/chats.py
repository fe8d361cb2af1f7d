"""Reads conversations of other programs: ChatGPT, Claude.ai, Claude Code, Codex, Gemini CLI, and lists of messages.

A conversation keeps its ids, times and order. If a prompt was edited, the branch that the program shows is the thread,
and each branch that was left is a thread of its own with the messages after the fork.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.checks import JSON
from commonplace.exchange.sources import (
    Chat,
    Conversation,
    Document,
    Format,
    Item,
    Leaf,
    LeftOut,
    Memory,
    Problem,
    Tree,
    json_array,
    json_lines,
    kept_id,
    made_id,
    text_of_parts,
    time_of,
)
from commonplace.language.transcripts import Said, id_of, messages_of, said_in, without_reminders

MAX_NODES = 200_000
_TITLE_CHARACTERS = 80
_ROLES = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "AIMessageChunk": "assistant",
    "gemini": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "function",
    "system": "system",
    "developer": "developer",
}


# Branches


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a conversation; some have no message that is shown."""

    id: str
    parent: str | None
    message: Mapping[str, Any] | None


def _branches(nodes: Mapping[str, _Node], current: str | None) -> list[tuple[str | None, list[_Node]]]:
    """The paths of a tree: first the one to `current`, then what is only on others, each with the node it left from."""
    taken: set[str] = set()
    parents = {node.parent for node in nodes.values()}
    leaves = [id for id in nodes if id not in parents]
    if current not in nodes:
        current = leaves[-1] if leaves else next(iter(nodes), None)
    found: list[tuple[str | None, list[_Node]]] = []
    for leaf in (current, *leaves, *nodes):  # hostile input may have a cycle, which has no leaf
        path: list[_Node] = []
        id = leaf
        while id is not None and id in nodes and id not in taken:
            taken.add(id)
            path.append(nodes[id])
            id = nodes[id].parent
        if path:
            found.append((id if id in nodes else None, path[::-1]))
    return found


def _chats(
    id: str,
    nodes: Mapping[str, _Node],
    current: str | None,
    *,
    title: str | None,
    created_at: int | None,
    updated_at: int | None,
    metadata: Mapping[str, JSON],
) -> tuple[Chat, ...]:
    """The thread of a conversation, and one for each branch that was left."""
    chats: list[Chat] = []
    for fork, path in _branches(nodes, current):
        messages = [node.message for node in path if node.message is not None]
        if not chats:
            chats.append(Chat(id, messages, title, created_at, updated_at, metadata))
        elif messages:
            branch: dict[str, JSON] = {"thread": id}
            if fork is not None and (shown := _shown_above(nodes, fork)) is not None:
                branch["after"] = shown
            name = kept_id(f"{id}~{path[0].id}", id, path[0].id)
            chats.append(Chat(name, messages, title, created_at, updated_at, {**metadata, "branch": branch}))
    return tuple(chats)


def _shown_above(nodes: Mapping[str, _Node], id: str | None) -> str | None:
    """The message that a branch left from: the nearest one that is shown."""
    for _ in range(len(nodes)):
        if id is None or id not in nodes:
            return None
        message = nodes[id].message
        if message is not None:
            return str(message["id"])
        id = nodes[id].parent
    return None


def _texts(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _title_from(messages: Sequence[Mapping[str, Any]]) -> str | None:
    for message in messages:
        if message["role"] == "user" and (text := " ".join(text_of_parts(message["content"]).split())):
            return text if len(text) <= _TITLE_CHARACTERS else text[: _TITLE_CHARACTERS - 1] + "…"
    return None


# ChatGPT


def _is_chatgpt(leaf: Leaf, tree: Tree) -> bool:
    one = _first_of_array(leaf)
    return "mapping" in one and isinstance(one["mapping"], dict)


def _first_of_array(leaf: Leaf) -> Mapping[str, Any]:
    found = leaf.first
    return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}


def _read_chatgpt(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    with leaf.open() as stream:
        for number, found in enumerate(json_array(stream), 1):
            if isinstance(found, Problem):
                yield found
            elif not isinstance(found, dict) or not isinstance(found.get("mapping"), dict):
                yield Problem(f"conversation {number}", "it has no mapping of messages")
            else:
                yield _chatgpt(number, found)


def _chatgpt(number: int, found: Mapping[str, Any]) -> Item:
    id = kept_id(found.get("conversation_id") or found.get("id"), "chatgpt", str(found.get("title")), str(number))
    if len(found["mapping"]) > MAX_NODES:
        return Problem(f"conversation {id}", f"it has more than {MAX_NODES:,} messages")
    nodes: dict[str, _Node] = {}
    problems: list[Problem | LeftOut] = []
    for key, node in found["mapping"].items():
        if not isinstance(node, dict):
            problems.append(Problem(f"conversation {id}: node {key}", "it is not an object"))
            continue
        message = node.get("message")
        shown: Mapping[str, Any] | None = None
        if isinstance(message, dict):
            if _is_hidden(message):
                problems.append(LeftOut(f"conversation {id}: message {key}", "it is hidden"))
            else:
                shown = _chatgpt_message(str(key), message)
        parent = node.get("parent")
        nodes[str(key)] = _Node(str(key), parent if isinstance(parent, str) else None, shown)
    created, updated = time_of(found.get("create_time")), time_of(found.get("update_time"))
    metadata: dict[str, JSON] = {"source": f"chatgpt:{id}"}
    for name, field in (("model", "default_model_slug"), ("project", "gizmo_id")):
        if isinstance(found.get(field), str):
            metadata[name] = found[field]
    if found.get("is_archived") is True:
        metadata["archived"] = True
    current = found.get("current_node")
    chats = _chats(
        id,
        nodes,
        current if isinstance(current, str) else None,
        title=_texts(found.get("title")),
        created_at=created,
        updated_at=updated,
        metadata=metadata,
    )
    if not chats:
        return LeftOut(f"conversation {id}", "it has no messages")
    return Conversation(f"conversation {id}", chats, ("chatgpt",), tuple(problems))


def _is_hidden(message: Mapping[str, Any]) -> bool:
    metadata = message.get("metadata")
    is_hidden = isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation") is True
    weight = message.get("weight")
    return is_hidden or (weight == 0 and not isinstance(weight, bool)) or not _has_content(message.get("content"))


def _has_content(content: object) -> bool:
    if not isinstance(content, dict):
        return isinstance(content, str) and bool(content)
    if content.get("content_type") in ("text", "multimodal_text") and isinstance(content.get("parts"), list):
        return any(part not in ("", None) for part in content["parts"])
    return bool(content)


def _chatgpt_message(key: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
    author = message.get("author") if isinstance(message.get("author"), dict) else {}
    assert isinstance(author, dict)
    role = author.get("role")
    shown: dict[str, Any] = {
        "id": kept_id(message.get("id") or key, "chatgpt", key),
        "role": _ROLES.get(role, "data") if isinstance(role, str) else "data",
        "content": _chatgpt_content(message.get("content")),
        "createdAt": time_of(message.get("create_time")),
    }
    if isinstance(author.get("name"), str) and author["name"]:
        shown["name"] = author["name"]
    metadata = message.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("model_slug"), str):
        shown["metadata"] = {"model": metadata["model_slug"]}
    return shown


def _chatgpt_content(content: object) -> JSON:
    if not isinstance(content, dict):
        return content if isinstance(content, str) else ""
    kind, parts = content.get("content_type"), content.get("parts")
    if kind in ("text", "multimodal_text") and isinstance(parts, list):
        if all(isinstance(part, str) for part in parts):
            return "\n".join(parts)
        return [
            {"type": "text", "text": part} if isinstance(part, str) else part
            for part in parts
            if isinstance(part, (str, dict))
        ]
    if kind in ("code", "execution_output") and isinstance(content.get("text"), str):
        return str(content["text"])
    if kind == "thoughts" and isinstance(content.get("thoughts"), list):
        thoughts = [one for one in content["thoughts"] if isinstance(one, dict)]
        text = "\n\n".join(str(one.get("content") or one.get("summary") or "") for one in thoughts)
        return [{"type": "reasoning", "text": text}]
    return [{**content, "type": str(kind or "unknown")}]


def _is_chatgpt_memory(leaf: Leaf, tree: Tree) -> bool:
    one = _first_of_array(leaf)
    return isinstance(one.get("content"), str) and "enabled" in one and "role" not in one


def _read_chatgpt_memory(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    with leaf.open() as stream:
        for number, found in enumerate(json_array(stream), 1):
            if isinstance(found, Problem):
                yield found
            elif not isinstance(found, dict) or not isinstance(found.get("content"), str):
                yield Problem(f"memory {number}", "it has no content")
            elif found.get("enabled") is False:
                yield LeftOut(f"memory {number}", "it is switched off")
            else:
                id = kept_id(found.get("id"), "chatgpt-memory", found["content"])
                at = time_of(found.get("created_at") or found.get("create_time") or found.get("created_timestamp"))
                updated = time_of(found.get("updated_at") or found.get("last_updated"))
                yield Memory(
                    id,
                    "memory",
                    found["content"],
                    f"chatgpt:{id}",
                    created_at=at,
                    updated_at=updated or at,
                    origin=("chatgpt",),
                )


# Claude.ai


def _is_claude(leaf: Leaf, tree: Tree) -> bool:
    one = _first_of_array(leaf)
    return "uuid" in one and any(isinstance(one.get(name), list) for name in ("chat_messages", "messages"))


def _read_claude(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    with leaf.open() as stream:
        for number, found in enumerate(json_array(stream), 1):
            if isinstance(found, Problem):
                yield found
                continue
            messages = (found.get("chat_messages") or found.get("messages")) if isinstance(found, dict) else None
            if not isinstance(messages, list):
                if isinstance(found, dict) and found.get("uuid") and messages in (None, ""):
                    yield LeftOut(f"conversation {number}", "it has no messages")
                else:
                    yield Problem(f"conversation {number}", "it has no list of messages")
                continue
            yield _claude(number, found, messages)


def _claude(number: int, found: Mapping[str, Any], messages: Sequence[Any]) -> Item:
    id = kept_id(found.get("uuid"), "claude", str(found.get("name")), str(number))
    nodes: dict[str, _Node] = {}
    problems: list[Problem | LeftOut] = []
    before: str | None = None
    for place, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            problems.append(Problem(f"conversation {id}: message {place}", "it is not an object"))
            continue
        key = kept_id(message.get("uuid") or message.get("id"), "claude", id, str(place))
        parent = message.get("parent_message_uuid")
        role = message.get("sender") or message.get("role")
        content = _claude_content(message)
        if content in ("", []):
            problems.append(LeftOut(f"conversation {id}: message {place}", "it is empty"))
        shown: dict[str, Any] = {
            "id": key,
            "role": _ROLES.get(role, "data") if isinstance(role, str) else "data",
            "content": content,
            "createdAt": time_of(message.get("created_at")),
        }
        for extra in ("attachments", "files"):
            if isinstance(message.get(extra), list) and message[extra]:
                shown[extra] = message[extra]
        # The first message of a conversation names a parent that does not exist.
        above = parent if isinstance(parent, str) else before
        nodes[key] = _Node(key, above, shown if content not in ("", []) or len(shown) > 4 else None)
        before = key
    if not nodes:
        return LeftOut(f"conversation {id}", "it has no messages")
    current = found.get("current_leaf_message_uuid")
    chats = _chats(
        id,
        nodes,
        current if isinstance(current, str) else before,
        title=_texts(found.get("name")) or _texts(found.get("title")),
        created_at=time_of(found.get("created_at")),
        updated_at=time_of(found.get("updated_at")),
        metadata={"source": f"claude:{id}"},
    )
    return Conversation(f"conversation {id}", chats, ("claude",), tuple(problems))


def _claude_content(message: Mapping[str, Any]) -> JSON:
    content = message.get("content")
    if isinstance(content, list) and content:
        blocks = [block for block in content if isinstance(block, (dict, str))]
        if all(isinstance(block, str) or block.get("type") == "text" for block in blocks):
            return text_of_parts(blocks) or (_texts(message.get("text")) or "")
        return blocks
    return _texts(message.get("text")) or (content if isinstance(content, str) else "")


def _is_claude_projects(leaf: Leaf, tree: Tree) -> bool:
    one = _first_of_array(leaf)
    return "uuid" in one and isinstance(one.get("docs"), list)


def _read_claude_projects(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    with leaf.open() as stream:
        for number, found in enumerate(json_array(stream), 1):
            if isinstance(found, Problem):
                yield found
            elif not isinstance(found, dict) or not isinstance(found.get("docs"), list):
                yield Problem(f"project {number}", "it has no list of docs")
            else:
                yield from _claude_docs(number, found)


def _claude_docs(number: int, project: Mapping[str, Any]) -> Iterator[Item]:
    name = _segment(project.get("name"), f"project-{number}")
    at = time_of(project.get("created_at"))
    instructions = project.get("prompt_template")
    if isinstance(instructions, str) and instructions.strip():
        yield Document(f"/projects/{name}/instructions.md", instructions, at, at, ("claude", name))
    for place, doc in enumerate(project["docs"], 1):
        if not isinstance(doc, dict) or not isinstance(doc.get("content"), str):
            yield Problem(f"project {name}: document {place}", "it has no content")
            continue
        file = _segment(doc.get("filename"), f"document-{place}")
        made = time_of(doc.get("created_at")) or at
        yield Document(f"/projects/{name}/{file}", doc["content"], made, made, ("claude", name))


def _segment(name: object, default: str) -> str:
    """A name as one part of a path."""
    text = re.sub(r"[/\\%\x00-\x1f\x7f]+", "-", name).strip(" .") if isinstance(name, str) else ""
    return text[:100].strip(" .") or default


# Transcripts of programs on the command line


def _lines_of(leaf: Leaf) -> tuple[Mapping[str, Any], ...]:
    return leaf.first if isinstance(leaf.first, tuple) else ()


def _is_claude_code(leaf: Leaf, tree: Tree) -> bool:
    return any("parentUuid" in line and "uuid" in line for line in _lines_of(leaf))


def _read_claude_code(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    stem = leaf.name.rpartition(".")[0] or leaf.name
    session, title, current = None, None, None
    nodes: dict[str, _Node] = {}
    problems: list[Problem | LeftOut] = []
    with leaf.open() as stream:
        for number, line in json_lines(stream):
            if isinstance(line, Problem):
                problems.append(Problem(f"{leaf.path}: {line.name}", line.reason))
                continue
            if not isinstance(line, dict):
                problems.append(Problem(f"{leaf.path}: line {number}", "it is not an object"))
                continue
            if line.get("type") in ("summary", "custom-title", "ai-title"):
                title = _texts(line.get("summary")) or _texts(line.get("customTitle")) or _texts(line.get("aiTitle"))
            key = line.get("uuid")
            if not isinstance(key, str) or not key:
                continue
            session = session or _texts(line.get("sessionId"))
            shown = None
            if line.get("type") in ("user", "assistant") and line.get("isMeta") is not True:
                shown = _claude_code_message(key, line)
                if line.get("isSidechain") is not True:
                    current = key
            parent = line.get("parentUuid") or line.get("logicalParentUuid")
            nodes[key] = _Node(key, parent if isinstance(parent, str) else None, shown)
            if len(nodes) > MAX_NODES:
                problems.append(Problem(leaf.path, f"it has more than {MAX_NODES:,} lines; the rest is left out"))
                break
    id = kept_id(session or stem, "claude-code", leaf.path)
    shown_messages = [node.message for node in nodes.values() if node.message is not None]
    if not shown_messages:
        yield from problems
        yield LeftOut(leaf.path, "it has no messages")
        return
    chats = _chats(
        id,
        nodes,
        current,
        title=title or _title_from(shown_messages),
        created_at=None,
        updated_at=None,
        metadata={"source": f"claude-code:{id}"},
    )
    yield Conversation(f"session {id}", chats, ("claude-code", _slug_of(leaf, tree)), tuple(problems))


def _slug_of(leaf: Leaf, tree: Tree) -> str:
    """The folder of the project, under which Claude Code keeps its sessions."""
    parts = [part for part in leaf.folder.split("/") if part and part not in ("memory", "projects")]
    return parts[-1] if parts else tree.name if tree.is_folder else "session"


def _claude_code_message(key: str, line: Mapping[str, Any]) -> Mapping[str, Any] | None:
    said = said_in(line)
    if said is None:
        return None
    message = line["message"]
    content = _shown_content(said.content)
    if not content:
        return None
    role = _ROLES.get(str(message.get("role") or line["type"]), "data")
    is_results = isinstance(content, list) and all(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )
    return {
        "id": kept_id(key, "claude-code"),
        "role": "tool" if role == "user" and is_results else role,
        "content": content,
        "createdAt": time_of(said.timestamp),
        **({"metadata": {"model": message["model"]}} if isinstance(message.get("model"), str) else {}),
    }


def _shown_content(content: object) -> JSON:
    """A content without what the program tells the model about itself; one text is a string."""
    if isinstance(content, str):
        return without_reminders(content).strip("\n")
    if not isinstance(content, list):
        return ""
    blocks: list[JSON] = []
    for block in content:
        if isinstance(block, str):
            block = {"type": "text", "text": block}
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text":
            text = without_reminders(str(block.get("text", "")))
            if not text.strip():
                continue
            block = {**block, "text": text}
        blocks.append(block)
    if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].keys() == {"type", "text"}:
        return str(blocks[0]["text"])
    return blocks


def _is_codex(leaf: Leaf, tree: Tree) -> bool:
    lines = _lines_of(leaf)
    return any(line.get("type") == "session_meta" for line in lines) or any(
        line.get("type") == "event_msg" and isinstance(line.get("payload"), dict) for line in lines
    )


def _read_codex(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    session: str | None = None
    metadata: dict[str, JSON] = {}
    created = None
    steps: list[tuple[int, Said]] = []
    problems: list[Problem | LeftOut] = []
    with leaf.open() as stream:
        for number, line in json_lines(stream):
            if isinstance(line, Problem):
                problems.append(Problem(f"{leaf.path}: {line.name}", line.reason))
                continue
            payload = line.get("payload") if isinstance(line, dict) else None
            if not isinstance(payload, dict):
                continue
            if line.get("type") == "session_meta" and session is None:
                session = _texts(payload.get("id"))
                created = time_of(payload.get("timestamp") or line.get("timestamp"))
                metadata |= {name: payload[name] for name in ("cwd", "cli_version") if _texts(payload.get(name))}
            if (said := said_in(line)) is not None and said.text:
                steps.append((number, said))
    id = kept_id(session, "codex", leaf.name)
    yield from _session(id, "codex", steps, created, metadata, problems, leaf)


def _session(
    id: str,
    tool: str,
    steps: Sequence[tuple[int, Said]],
    created: int | None,
    metadata: Mapping[str, JSON],
    problems: Sequence[Problem | LeftOut],
    leaf: Leaf,
) -> Iterator[Item]:
    """A session without branches. Of two equal messages of the same moment, the second gets an id from its line."""
    if not steps:
        yield from problems
        yield LeftOut(leaf.path, "it has no messages")
        return
    messages: dict[str, dict[str, Any]] = {}
    for number, said in steps:
        key = id_of(said, id)
        if key in messages:
            key = made_id(tool, id, str(number))
        messages[key] = {"id": key, "role": said.role, "content": said.text, "createdAt": time_of(said.timestamp)}
    listed = [*messages.values()]
    chat = Chat(id, listed, _title_from(listed), created, metadata={"source": f"{tool}:{id}", **metadata})
    yield Conversation(f"session {id}", (chat,), (tool,), tuple(problems))


def _is_gemini(leaf: Leaf, tree: Tree) -> bool:
    whole = leaf.first
    if isinstance(whole, dict):
        return "sessionId" in whole and isinstance(whole.get("messages"), list)
    lines = _lines_of(leaf)
    if len(lines) == 1 and "sessionId" in lines[0] and isinstance(lines[0].get("messages"), list):
        return True
    is_session = any(line.get("type") == "session_metadata" for line in lines)
    return is_session or any(line.get("type") == "gemini" and "content" in line for line in lines)


def _read_gemini(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    session: str | None = None
    created = None
    found: dict[str, tuple[int, Said]] = {}
    problems: list[Problem | LeftOut] = []
    for number, line in _gemini_lines(leaf):
        if isinstance(line, Problem):
            problems.append(Problem(f"{leaf.path}: {line.name}", line.reason))
            continue
        if not isinstance(line, dict):
            problems.append(Problem(f"{leaf.path}: line {number}", "it is not an object"))
            continue
        if line.get("type") == "session_metadata" or (session is None and "sessionId" in line):
            session = session or _texts(line.get("sessionId"))
            created = created or time_of(line.get("startTime"))
        if line.get("type") not in ("user", "gemini"):
            continue
        said = said_in(line)
        if said is None or not said.text:
            problems.append(LeftOut(f"{leaf.path}: line {number}", "it has no text"))
            continue
        found[said.id or str(number)] = (number, said)  # the program writes a message again when it grows
    id = kept_id(session, "gemini", leaf.name)
    yield from _session(id, "gemini", [*found.values()], created, {}, problems, leaf)


def _gemini_lines(leaf: Leaf) -> Iterator[tuple[int, Any]]:
    whole = leaf.first
    document = whole if isinstance(whole, dict) else whole[0] if isinstance(whole, tuple) and len(whole) == 1 else {}
    messages = messages_of(document)
    if messages is not None:
        yield 0, {name: value for name, value in document.items() if name != "messages"}
        yield from enumerate(messages, 1)
        return
    with leaf.open() as stream:
        yield from json_lines(stream)


# Lists of messages, as LangChain and OpenAI write them


def _is_message(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    if _is_role(value.get("role")) and ("content" in value or "tool_calls" in value):
        return True
    if value.get("lc") == 1 and isinstance(value.get("kwargs"), dict):
        return True
    return _is_role(value.get("type")) and (isinstance(value.get("data"), dict) or "content" in value)


def _is_role(value: object) -> bool:
    return isinstance(value, str) and value in _ROLES


def _is_messages(leaf: Leaf, tree: Tree) -> bool:
    first = leaf.first
    lines = list(first) if isinstance(first, (list, tuple)) else [first]
    one = next((line for line in lines if isinstance(line, (dict, list))), None)
    if isinstance(one, list):
        return bool(one) and _is_message(one[0])
    if not isinstance(one, dict):
        return False
    listed = one.get("messages")
    return _is_message(one) or (isinstance(listed, list) and bool(listed) and _is_message(listed[0]))


def _read_messages(leaf: Leaf, tree: Tree) -> Iterator[Item]:
    """One conversation for each line or element that lists messages; lines that are messages are one conversation."""
    alone: list[tuple[int, Mapping[str, Any]]] = []
    for number, found in _elements(leaf):
        if isinstance(found, Problem):
            yield found
            continue
        listed = found.get("messages") if isinstance(found, dict) else found
        if isinstance(listed, list) and listed:
            yield _listed(number, found if isinstance(found, dict) else {}, listed)
        elif _is_message(found):
            alone.append((number, found))
            if len(alone) > MAX_NODES:
                yield Problem(leaf.path, f"it has more than {MAX_NODES:,} messages; the rest is left out")
                break
        else:
            yield Problem(f"element {number}", "it is neither a message nor a list of messages")
    if alone:
        yield _listed(1, {}, [message for _, message in alone], is_growing=True)


def _elements(leaf: Leaf) -> Iterator[tuple[int, Any]]:
    if isinstance(leaf.first, list):
        with leaf.open() as stream:
            yield from enumerate(json_array(stream), 1)
    elif isinstance(leaf.first, dict):
        yield 1, leaf.first
    else:
        with leaf.open() as stream:
            yield from json_lines(stream)


def _listed(number: int, fields: Mapping[str, Any], listed: Sequence[Any], *, is_growing: bool = False) -> Item:
    """A list of messages. Without an id of its own it is known by its content: a file that grows, by its beginning."""
    given = next((fields[name] for name in _THREAD_IDS if isinstance(fields.get(name), str) and fields[name]), None)
    id = (
        made_id("messages", repr(listed[:1] if is_growing else listed)) if given is None else kept_id(given, "messages")
    )
    messages: list[Mapping[str, Any]] = []
    problems: list[Problem | LeftOut] = []
    for place, one in enumerate(listed, 1):
        message = _message(one)
        if message is None:
            problems.append(Problem(f"conversation {number}: message {place}", "it is not a message"))
            continue
        written = message.pop("written_id", None)
        message["id"] = kept_id(written, "messages", id) if written else made_id("messages", id, str(place))
        messages.append(message)
    if not messages:
        return problems[0]
    title = _texts(fields.get("title")) or _texts(fields.get("name")) or _title_from(messages)
    chat = Chat(
        id,
        messages,
        title,
        time_of(fields.get("created_at") or fields.get("createdAt")),
        time_of(fields.get("updated_at") or fields.get("updatedAt")),
        {"source": f"messages:{id}"},
    )
    return Conversation(f"conversation {number}", (chat,), ("messages",), tuple(problems))


_THREAD_IDS = ("id", "thread_id", "threadId", "conversation_id", "session_id")
_TIMES = ("createdAt", "created_at", "timestamp")


def _message(one: object) -> dict[str, Any] | None:
    if not isinstance(one, dict) or not _is_message(one):
        return None
    if one.get("lc") == 1:  # LangChain's own form of its objects
        name = one["id"][-1] if isinstance(one.get("id"), list) and one["id"] else ""
        kind = re.sub(r"Message(Chunk)?$", "", name).lower() if isinstance(name, str) else ""
        one = {**one["kwargs"], "role": kind}
    elif isinstance(one.get("data"), dict):
        one = {**one["data"], "role": one["type"]}
    elif "role" not in one:
        one = {**{name: value for name, value in one.items() if name != "type"}, "role": one["type"]}
    role = one.get("role")
    kept = {
        name: value
        for name, value in one.items()
        if name not in ("id", "role", "content", *_TIMES)
        and value not in (None, [], {})
        and not (name == "type" and _is_role(value))
    }
    content = one.get("content")
    message: dict[str, Any] = {
        **kept,
        "role": _ROLES.get(role, "data") if isinstance(role, str) else "data",
        "content": content if content is not None or kept.keys() & {"tool_calls", "function_call"} else "",
        "createdAt": next((at for name in _TIMES if (at := time_of(one.get(name))) is not None), None),
        "written_id": one.get("id"),
    }
    return message


FORMATS = (
    Format("chatgpt", "ChatGPT export", _is_chatgpt, _read_chatgpt),
    Format("chatgpt-memory", "ChatGPT's saved memories", _is_chatgpt_memory, _read_chatgpt_memory),
    Format("claude", "Claude.ai export", _is_claude, _read_claude),
    Format("claude-projects", "Claude.ai projects", _is_claude_projects, _read_claude_projects),
    Format("claude-code", "Claude Code sessions", _is_claude_code, _read_claude_code),
    Format("codex", "Codex sessions", _is_codex, _read_codex),
    Format("gemini", "Gemini CLI sessions", _is_gemini, _read_gemini),
    Format("messages", "lists of messages", _is_messages, _read_messages),
)
