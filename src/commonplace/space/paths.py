"""The one rule for paths, for every dialect: what a path may be, and the key that it is stored under.

`..` and `.` are refused as segments in any encoding, and so are control characters; any other name is legal.
A stored key has U+0001 for each `/`, so that a directory sorts together.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

from commonplace.checks import check_line, check_text, invisible_in
from commonplace.entry import SEPARATOR
from commonplace.errors import InvalidInput, InvalidPath, TooLarge
from commonplace.limits import Limits

ROOT = "/"
MAX_SEGMENT_BYTES = 255
_MAX_DECODINGS = 10


def normalise(path: object, limits: Limits) -> str:
    """Return the path in its one form, `/notes/today`: a leading `/`, none at the end, none doubled, in NFC."""
    text = _check_characters(path, limits)
    text = unicodedata.normalize("NFC", re.sub(r"[/\\]+", "/", text)).strip("/")
    if not text:
        return ROOT
    segments = text.split("/")
    for segment in segments:
        _check_segment(segment)
    normal = ROOT + "/".join(segments)
    if len(normal.encode()) > limits.path_bytes:
        raise TooLarge(f"path has {len(normal.encode()):,} bytes; at most {limits.path_bytes:,} are allowed")
    if len(segments) > limits.path_segments:
        raise TooLarge(f"path has {len(segments)} segments; at most {limits.path_segments} are allowed")
    return normal


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
    """Refuse a name that nothing has yet where a part of it cannot be seen."""
    if found := invisible_in(name):
        raise InvalidPath(f"invalid path segment: {name!r}; it contains the invisible character {found}", name)


def key_of(path: str) -> str:
    return path.replace("/", SEPARATOR)


def path_of(key: str) -> str:
    return key.replace(SEPARATOR, "/")


def parents(path: str) -> list[str]:
    """The directories above a path, the outermost first, the root left out."""
    segments = path.strip("/").split("/")[:-1]
    return [ROOT + "/".join(segments[: count + 1]) for count in range(len(segments))]


def name_of(path: str) -> str:
    return path.rpartition("/")[2]
