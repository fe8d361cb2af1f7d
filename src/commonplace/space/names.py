"""What entries are called: their kinds, the paths and ids that callers use, and the keys that these are stored under.

There is one rule for paths, whatever the interface. `.` and `..` are refused as segments in any encoding, and so are
control characters; any other name is allowed. A stored key has U+0001 in place of each `/`, so that the entries of a
directory sort together.
"""

from __future__ import annotations

import os
import re
import time
import unicodedata
from urllib.parse import quote, unquote

from commonplace.checks import JSON, Limits, check_line, check_text, invisible_in
from commonplace.entry import SEPARATOR, Entry
from commonplace.errors import InvalidInput, InvalidPath, TooLarge

FILE = "file"
DIRECTORY = "directory"
RECORD = "record"
THREAD = "thread"
MESSAGE = "message"
WORKING = "working"
ITEM = "item"
KINDS = (FILE, DIRECTORY, RECORD, THREAD, MESSAGE, WORKING, ITEM)
SEARCHED_KINDS = (FILE, RECORD, MESSAGE, ITEM)

MEMORY_STORE = "memory_store"
"""The label above the namespaces of memory stores: `user/ana/memory_store/memstore_…`."""

ROOT = "/"
MAX_SEGMENT_BYTES = 255
_MAX_DECODINGS = 10
_RANDOM_AT_ONCE = 64
_random: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.clear)  # it must not give out those of its parent
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""Two bits of a digit of a UUID are fixed."""
_NOT_IN_LABEL = re.compile("[%/\x00-\x1f\x7f-\x9f\u2028\u2029]")


# Ids


def new_id() -> str:
    """A random UUID. `uuid.uuid4` takes twice as long."""
    random = _random_digits()
    return f"{random[:8]}-{random[8:12]}-4{random[13:16]}-{_VARIANT[random[16]]}{random[17:20]}-{random[20:]}"


def _random_digits() -> str:
    """32 random hexadecimal digits. Each call of the system for more lets another thread take the interpreter."""
    try:
        return _random.pop()
    except IndexError:
        digits = os.urandom(16 * _RANDOM_AT_ONCE).hex()
        _random.extend(digits[start : start + 32] for start in range(32, len(digits), 32))
        return digits[:32]


def new_message_id() -> str:
    """A UUID of version 7, which begins with the time: the milliseconds, and then 4096ths of one.

    So the ids of new messages are at the end of their index, and a write changes fewer pages of it.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    begin, random = f"{milliseconds:012x}", _random_digits()
    return f"{begin[:8]}-{begin[8:]}-7{rest * 4_096 // 1_000_000:03x}-{_VARIANT[random[0]]}{random[1:4]}-{random[4:16]}"


# Paths


def normalise(path: object, limits: Limits) -> str:
    """Return the path in normal form, such as `/notes/today`: a leading `/`, none at the end, none doubled, NFC."""
    text = _check_characters(path, limits)
    text = unicodedata.normalize("NFC", re.sub(r"[/\\]+", "/", text)).strip("/")
    if not text:
        return ROOT
    segments = text.split("/")
    for segment in segments:
        _check_segment(segment)
    return check_path_size(ROOT + "/".join(segments), limits)


def check_path_size(path: str, limits: Limits) -> str:
    """Return a normalised path that is neither too long nor too deep."""
    size, segments = len(path.encode()), path.count("/")
    if size > limits.path_bytes:
        raise TooLarge(f"path has {size:,} bytes; at most {limits.path_bytes:,} are allowed")
    if segments > limits.path_segments:
        raise TooLarge(f"path has {segments} segments; at most {limits.path_segments} are allowed")
    return path


def _check_characters(path: object, limits: Limits) -> str:
    try:
        return check_text("path", path, max_bytes=4 * limits.path_bytes)
    except TooLarge:
        raise
    except InvalidInput as error:
        if not isinstance(path, str):
            raise
        bad = re.compile("[\x00\ud800-\udfff]")
        segment = next(part for part in re.split(r"[/\\]", path) if bad.search(part))
        raise InvalidPath(str(error), segment) from error


def _check_segment(segment: str) -> None:
    decoded = segment
    for _ in range(_MAX_DECODINGS):
        _check_decoded(segment, decoded)
        again = unquote(decoded, errors="surrogateescape")
        if again == decoded:
            break
        decoded = again
    else:
        raise InvalidPath(f"invalid path segment: {segment!r}; it is percent-encoded too many times over", segment)
    if not segment.strip():
        raise InvalidPath("invalid path segment: a name must not be blank", segment)
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        raise InvalidPath(f"a path segment has at most {MAX_SEGMENT_BYTES} bytes: {segment[:40]!r}…", segment)


def _check_decoded(segment: str, decoded: str) -> None:
    parts = [part.strip() for part in re.split(r"[/\\]", unicodedata.normalize("NFKC", decoded))]
    if "." in parts or ".." in parts:
        raise InvalidPath(
            f'invalid path segment: {segment!r}; ".." and "." are not allowed, in any encoding',
            segment,
            is_traversal=".." in parts,
        )
    try:
        check_line("path", decoded.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), max_bytes=1 << 20)
    except InvalidInput as error:
        raise InvalidPath(str(error), segment) from error


def check_new_name(name: str) -> None:
    """Refuse a new name with an invisible character."""
    if found := invisible_in(name):
        raise InvalidPath(f"invalid path segment: {name!r}; it contains the invisible character {found}", name)


def key_of(path: str) -> str:
    return path.replace("/", SEPARATOR)


def path_of(key: str) -> str:
    return key.replace(SEPARATOR, "/")


def parents(path: str) -> list[str]:
    """The directories above a path, the outermost first, without the root."""
    segments = path.strip("/").split("/")[:-1]
    return [ROOT + "/".join(segments[: count + 1]) for count in range(len(segments))]


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


# Names and keys


def name_of_key(kind: str, key: str) -> str:
    """The path of a file, or the parts of another key joined by `/`."""
    return path_of(key) if kind in (FILE, DIRECTORY) else key.replace(SEPARATOR, "/")


def key_of_name(kind: str, name: str) -> str:
    """The key that belongs to a name. An id in it can contain `/`."""
    if kind == WORKING:
        return name.replace("/", SEPARATOR, 1)  # scope, id
    if kind == MESSAGE:
        return SEPARATOR.join(name.rsplit("/", 2))  # thread, time, number
    return name


def stored_key_of(kind: str, name: str) -> str:
    """The key of what `name_of_key` named."""
    return key_of(name) if kind in (FILE, DIRECTORY) else key_of_name(kind, name)


def name_of_entry(entry: Entry) -> str:
    """The path of a file, or the id of a record, thread or message."""
    if entry.kind == MESSAGE and entry.identity is not None:
        return entry.identity
    return name_of_key(entry.kind, entry.key)


def thread_of_entry(entry: Entry) -> str | None:
    """The id of the thread that the entry is, or that it is a message of."""
    if entry.kind == MESSAGE:
        return entry.key.partition(SEPARATOR)[0]
    return entry.key if entry.kind == THREAD else None


def has_speaker(entry: Entry) -> bool:
    """Whether the entry is a message that names who said it, as in a conversation between people."""
    return entry.kind == MESSAGE and isinstance(entry.value, dict) and bool(entry.value.get("name"))


def is_by_assistant(entry: Entry) -> bool:
    """Whether an assistant said this and has no name; a named one is a person in a conversation of several."""
    return entry.kind == MESSAGE and entry.attributes.get("role") == "assistant" and not has_speaker(entry)


# Labels of namespaces


def label_of(text: str) -> str:
    """Any text that is not empty as a label of a namespace: what a label cannot hold is percent-encoded."""
    if not text:
        raise InvalidInput("a namespace label must not be empty")
    encoded = _NOT_IN_LABEL.sub(lambda found: quote(found[0], safe=""), text)
    return encoded if encoded.strip() else quote(text, safe="")


def text_of_label(label: str) -> str:
    """The text that `label_of` was given."""
    return unquote(label)


def item_key_of(text: str) -> str:
    """Any text as the key of an item: what a key cannot hold is percent-encoded. The empty text becomes `%`."""
    if not text:
        return "%"
    encoded = _NOT_IN_LABEL.sub(lambda found: found[0] if found[0] == "/" else quote(found[0], safe=""), text)
    return encoded if invisible_in(encoded) is None else quote(text, safe="/ ")


def text_of_item_key(key: str) -> str:
    """The text that `item_key_of` was given."""
    return "" if key == "%" else unquote(key)


# Measures of a text


def file_measures(text: str) -> dict[str, JSON]:
    """The size and the lines of a text: attributes of a file, so that listing a directory need not read it."""
    return {"size": len(text.encode()), "lines": line_count(text)}


def line_count(text: str) -> int:
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)


def with_line(text: str, line: int, new: str) -> str:
    """Insert a line after a line of a text; 0 inserts at the top. The text is not split into lines."""
    place = 0
    for _ in range(line):
        place = text.find("\n", place) + 1
        if not place:
            return f"{text}\n{new}"
    return f"{text[:place]}{new}\n{text[place:]}"
