"""Export and import over REST as JSON lines (docs/internal/export-format.md). Neither is held in memory as a whole."""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from fastapi.responses import Response, StreamingResponse

from commonplace.book import Book
from commonplace.checks import Namespace
from commonplace.errors import Forbidden, NotFound, TooLarge, Unavailable
from commonplace.exchange import Imported, ImportReport, namespaces_of
from commonplace.exchange.sources import UPLOAD_BOUNDS, UPLOAD_BYTES
from commonplace.server.http.answers import Call
from commonplace.server.http.auth import Principal
from commonplace.server.http.service import client_of, principal_of, service_of
from commonplace.server.http.worker_threads import in_thread

MEDIA_TYPE = "application/jsonl"
PIECE_BYTES = 1 << 16
STALL_SECONDS = 60.0
"""An export that is not read for this long is ended, because its snapshot would block maintenance of the store."""

_PIECES = 16
_MEMORY_BYTES = 1 << 20


def export(call: Call) -> Response:
    book, principal = service_of(call.request).book, principal_of(call.request)
    chosen, everything = call.arguments["namespaces"], call.arguments["everything"]
    namespaces = None if everything else [principal.resolve(name) for name in chosen] or [principal.namespace]
    if everything and principal.reach != "all":
        raise Forbidden("these credentials do not reach every namespace; name those to export")
    for namespace in namespaces or ():
        if namespace not in book.namespaces(*namespace, limit=1, emptied=True):
            raise NotFound(f"there is no namespace {'/'.join(namespace)}; GET /v1/namespaces lists the existing ones")
    pieces = _pieces(book, namespaces)
    # Report an unavailable store with a status. Once the answer has begun, only a broken connection can report it.
    first = next(pieces)
    return StreamingResponse(_with_first(first, pieces), media_type=MEDIA_TYPE)


async def _with_first(first: bytes, pieces: Generator[bytes]) -> AsyncIterator[bytes]:
    try:
        yield first
        while (piece := await in_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        pieces.close()


class _Abandoned(Exception):
    """The reader of an export has disconnected, or has stopped reading."""


def _pieces(book: Book, namespaces: Sequence[Namespace] | None) -> Generator[bytes]:
    """The export, written by one thread, because a snapshot belongs to one thread."""
    pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(_PIECES)
    abandoned = threading.Event()

    def give(piece: bytes | BaseException | None) -> None:
        end = time.monotonic() + STALL_SECONDS
        while not abandoned.is_set():
            try:
                return pieces.put(piece, timeout=1)
            except queue.Full:
                if time.monotonic() >= end:
                    cut_off()
                    break
        raise _Abandoned

    def cut_off() -> None:
        # The queued lines are useless without the rest. The reader gets the error if it reads on.
        with suppress(queue.Empty):
            while True:
                pieces.get_nowait()
        pieces.put(Unavailable(f"the export was not read for {STALL_SECONDS:g} s; request it again"))

    def run() -> None:
        held = bytearray()

        def write(line: bytes) -> None:
            held.extend(line)
            while len(held) >= PIECE_BYTES:
                give(bytes(held[:PIECE_BYTES]))
                del held[:PIECE_BYTES]

        try:
            try:
                book.export(write, namespaces=namespaces)
                give(bytes(held))
                give(None)
            except _Abandoned:
                raise
            except BaseException as error:  # noqa: BLE001 - passed to the reader, whose connection it breaks
                give(error)
        except _Abandoned:
            return

    threading.Thread(target=run, name="commonplace-export", daemon=True).start()
    try:
        while (piece := pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        abandoned.set()


async def import_lines(call: Call) -> list[Imported]:
    request, principal = call.request, principal_of(call.request)
    principal.rules.check("admin")
    name = call.arguments["namespace"]
    only = None if name is None else principal.resolve(name)
    actor = " ".join(filter(None, (principal.name, "rest", client_of(request))))
    with tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as held:
        async for piece in request.stream():
            held.write(piece)
        lines = cast("BinaryIO", held)
        book = service_of(request).book
        return await in_thread(_imported, book, principal, lines, only, call.arguments["merge"], actor, writes=True)


def _imported(
    book: Book, principal: Principal, held: BinaryIO, only: Namespace | None, merge: bool, actor: str
) -> list[Imported]:
    if only is None:
        for namespace in namespaces_of(held):
            principal.resolve("/".join(namespace))
    return list(book.import_lines(held, only=only, merge=merge, actor=actor, rules=principal.rules))


async def import_memory(call: Call) -> ImportReport:
    """Only the bytes of the request are imported: no path and no address of a database is accepted."""
    request, principal = call.request, principal_of(call.request)
    principal.rules.check("write")
    arguments = dict(call.arguments)
    namespace = principal.resolve(arguments.pop("namespace"))
    actor = " ".join(filter(None, (principal.name, "rest", client_of(request))))
    with uploaded() as held:
        async for piece in request.stream():
            await in_thread(held.add, piece)
        return await in_thread(
            import_upload, service_of(request).book, principal, held, namespace, actor, arguments, writes=True
        )


class Upload:
    """A file that a caller sends, on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = path.open("wb")
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > UPLOAD_BYTES:
            raise TooLarge(f"the file has more than {UPLOAD_BYTES:,} bytes; import it with the command line")
        self._stream.write(piece)

    def close(self) -> None:
        self._stream.close()


@contextmanager
def uploaded() -> Iterator[Upload]:
    with tempfile.TemporaryDirectory(prefix="commonplace-upload-") as folder:
        held = Upload(Path(folder) / "upload")
        try:
            yield held
        finally:
            held.close()


def import_upload(
    book: Book, principal: Principal, held: Upload, namespace: Namespace, actor: str, options: Mapping[str, Any]
) -> ImportReport:
    """Import a file that was sent, within the reach and the rules of the caller."""
    held.close()
    return book.import_memory(
        held.path,
        namespace,
        **options,
        bounds=UPLOAD_BOUNDS,
        actor=actor,
        rules=principal.rules,
        reaches=lambda labels: principal.resolve("/".join(labels)),
    )


HANDLERS: Mapping[str, Callable[[Call], Any]] = {
    "export": export,
    "import_lines": import_lines,
    "import_memory": import_memory,
}
