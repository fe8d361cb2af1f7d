"""`search`: by words and by meaning, over files, records and messages."""

from __future__ import annotations

import json
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from commonplace.cli.context import Context
from commonplace.cli.failures import NEGATIVE, OK
from commonplace.cli.values import time
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    from commonplace.cli.parser import Commands
    from commonplace.engine.search import SearchResult
    from commonplace.entry import Hit


def register(commands: Commands) -> None:
    parser = commands.add(
        "search",
        "Find and read",
        "Find by words and by meaning, the best first.",
        search,
        about="Exits with 1 when nothing was found, like grep. Notices, such as a missing model, go to stderr.",
        examples="""\
  commonplace search "when do we deploy?"
  commonplace search tea --kind record --tag person:ana
  commonplace search budget --as-of 2026-01-31 --json
  commonplace search error --filter '{"severity": {"$gte": 3}}'""",
    )
    parser.add_argument("query", nargs="+", help="what to look for")
    parser.add_argument("--limit", metavar="N", type=int, help="how many hits at most (default: 10)")
    parser.add_argument("--offset", metavar="N", type=int, default=0, help="leave out the first N hits")
    parser.add_argument("--kind", metavar="KIND", action="append", help="only file, record, message …; may be repeated")
    parser.add_argument("--type", metavar="TYPE", help="only records of this type")
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="only with this tag; may be repeated")
    match = parser.add_mutually_exclusive_group()
    match.add_argument("--match", choices=("all", "any"), help="all of the tags (default), or any")
    match.add_argument("--any-tag", dest="match", action="store_const", const="any", help="the same as --match any")
    parser.add_argument("--filter", metavar="JSON", help='only with these fields, such as \'{"size": {"$gt": 3}}\'')
    parser.add_argument("--after", metavar="TIME", type=time, help="only what was updated at this time or later")
    parser.add_argument("--before", metavar="TIME", type=time, help="only what was updated before this time")
    parser.add_argument("--as-of", metavar="TIME", type=time, help="search what was there at this time")
    parser.add_argument("--below", action="store_true", help="look into the namespaces under this one as well")


def search(context: Context) -> int:
    arguments = context.arguments
    limit, most = arguments.limit, context.settings.search_max_limit
    if limit is not None and limit > most:
        context.out.note(f"--limit {limit} was lowered to {most}; SEARCH_MAX_LIMIT sets it")
        limit = most
    with context.space() as space:
        found = space.search(
            " ".join(arguments.query),
            limit=context.settings.search_default_limit if limit is None else limit,
            offset=arguments.offset,
            kinds=arguments.kind,
            type=arguments.type,
            tags=arguments.tag,
            match=arguments.match or "all",
            filter=_filter(arguments.filter),
            after=arguments.after,
            before=arguments.before,
            as_of=arguments.as_of,
            below=arguments.below,
        )
    _show(context, found)
    return OK if found else NEGATIVE


def _filter(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f'--filter is not valid JSON: {error}; write it like \'{{"size": {{"$gt": 3}}}}\''
        ) from error


def _show(context: Context, found: SearchResult) -> None:
    for notice in found.notices:
        is_lagging = notice.endswith("found by keywords only") and context.settings.remote is None
        context.out.note(notice + (f"; run `{context.command('reindex')}` to embed now" if is_lagging else ""))
    if context.out.is_json:
        context.out.document({"hits": [_fields(hit) for hit in found], "notices": list(found.notices)})
        return
    if not found:
        context.out.note("nothing was found")
    for hit in found:
        _show_hit(context, hit)


def _fields(hit: Hit) -> dict[str, Any]:
    from commonplace.checks import moment

    return {
        "namespace": "/".join(hit.entry.namespace),
        "kind": hit.kind,
        "key": hit.key,
        "score": round(hit.score, 4),
        "parts": {name: round(part, 4) for name, part in hit.parts.items()},
        "snippet": hit.snippet,
        "revision": hit.entry.revision,
        "updated_at": moment(hit.entry.updated_at),
    }


def _show_hit(context: Context, hit: Hit) -> None:
    out = context.out
    place = f"{'/'.join(hit.entry.namespace)}  " if context.arguments.below else ""
    score = out.paint(f"{hit.score:.2f}", "green")
    out.line(f"{score}  {hit.kind:<7} {out.paint(place, 'dim')}{out.paint(out.clean(hit.key), 'bold')}")
    if not hit.snippet:
        return
    if not out.is_terminal:
        out.line(f"      {hit.snippet}")
        return
    width = max(40, shutil.get_terminal_size().columns - 6)
    for line in textwrap.wrap(out.clean(hit.snippet), width):
        out.line("      " + out.paint(line, "dim"))
