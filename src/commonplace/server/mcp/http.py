"""The server over streamable HTTP: the sessions of one memory and one profile, as an ASGI app."""

from __future__ import annotations

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from commonplace.server.mcp.app import Run, ToolCalls, build_server, run_in_thread
from commonplace.server.mcp.framing import MAX_LINE_BYTES
from commonplace.server.mcp.memory import Memory
from commonplace.server.mcp.posts import Posts
from commonplace.server.mcp.profiles import Profile

MAX_SESSIONS = 1_000
"""Of one caller with one profile."""

IDLE_SECONDS = 30 * 60


def session_manager(
    memory: Memory,
    profile: Profile,
    *,
    is_stateless: bool = False,
    run: Run = run_in_thread,
    tool_calls: ToolCalls | None = None,
) -> StreamableHTTPSessionManager:
    """The sessions of one memory and one profile, and nobody else's. `run` it before the first request."""
    manager = StreamableHTTPSessionManager(
        build_server(memory, profile, run=run, tool_calls=tool_calls),
        stateless=is_stateless,
        session_idle_timeout=IDLE_SECONDS,
        max_request_body_size=MAX_LINE_BYTES,  # the service's own limit comes before
        max_sessions=MAX_SESSIONS,
    )
    manager.asgi_app.app = Posts(manager.asgi_app.app)  # within its limit on bodies
    return manager
