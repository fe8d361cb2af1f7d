"""Runs the protocol's own conformance suite against our HTTP app.

Only the failures listed here, with a reason, are allowed. The suite counts warnings as failures here, and reports stale
entries: what passes must not be listed. Checks that it runs but does not score for a revision need no entry: tasks and
custom headers, which we do not have.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from install import node, npm

VERSION = "0.2.0-alpha.12"
SECONDS = 180

_COLOUR = re.compile(r"\x1b\[\d*m")

_NEVER_ASKS = "our server never asks its client for anything: no sampling, elicitation, roots or other input"
_NO_LOG_MESSAGES = "our log goes to stderr as JSON lines, not to the client"
_LISTS_STAY = "our tools and prompts stay the same while a server runs; the SDK declares listChanged with subscriptions"
_ONE_CODE = (
    "what is missing is -32000 in every revision, as for older clients; the suite recommends -32602 with the uri"
)

EXPECTED: dict[str, dict[str, str]] = {
    "2025-11-25": {
        "logging-set-level": _NO_LOG_MESSAGES,
        "tools-call-with-logging": _NO_LOG_MESSAGES,
        "tools-call-sampling": _NEVER_ASKS,
        "tools-call-elicitation": _NEVER_ASKS,
        "elicitation-sep1034-defaults": _NEVER_ASKS,
        "elicitation-sep1330-enums": _NEVER_ASKS,
    },
    "2026-07-28": {
        "server-stateless:sep-2575-server-rejects-undeclared-capability": _NEVER_ASKS,
        "server-stateless:sep-2575-missing-capability-http-400": _NEVER_ASKS,
        "server-stateless:sep-2575-http-server-no-independent-requests-on-stream": _NEVER_ASKS,
        "server-stateless:sep-2575-server-sends-prompts-list-changed-on-subscription": _LISTS_STAY,
        "server-stateless:sep-2575-server-sends-tools-list-changed-on-subscription": _LISTS_STAY,
        "sep-2164-resource-not-found:sep-2164-error-code": _ONE_CODE,
        "sep-2164-resource-not-found:sep-2164-data-uri": _ONE_CODE,
        "input-required-result-basic-elicitation": _NEVER_ASKS,
        "input-required-result-basic-sampling": _NEVER_ASKS,
        "input-required-result-basic-list-roots": _NEVER_ASKS,
        "input-required-result-request-state": _NEVER_ASKS,
        "input-required-result-multiple-input-requests": _NEVER_ASKS,
        "input-required-result-multi-round": _NEVER_ASKS,
        "input-required-result-non-tool-request": _NEVER_ASKS,
        "input-required-result-result-type": _NEVER_ASKS,
        "input-required-result-tampered-state": _NEVER_ASKS,
        "input-required-result-capability-check": _NEVER_ASKS,
        "input-required-result-missing-input-response": _NEVER_ASKS,
        "input-required-result-ignore-extra-params": _NEVER_ASKS,
    },
}


def install() -> Path:
    """The suite's program."""
    folder = npm(f"conformance-{VERSION}", f"@modelcontextprotocol/conformance@{VERSION}")
    return folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


def conformance(url: str, revision: str) -> tuple[list[str], str]:
    """The unexpected failures for a revision of the protocol, and how many checks passed."""
    with tempfile.TemporaryDirectory(prefix="commonplace-conformance-") as name:
        baseline = Path(name) / "expected.yml"
        baseline.write_text("server:\n" + "".join(f"  - {entry}\n" for entry in EXPECTED[revision]))
        words = ["--url", url, "--requirements", revision, "--expected-failures", str(baseline), "-o", name]
        try:
            answer = subprocess.run(
                [str(node()), str(install()), "server", *words],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [f"no end within {SECONDS} s"], ""
    summary = answer.stdout.partition("=== SUMMARY ===")[2]
    total = re.search(r"^Total: (\d+) passed", summary, re.MULTILINE)
    if total is None or int(total[1]) == 0:
        return ["the suite tells no total", *answer.stdout.splitlines()[-5:], *answer.stderr.splitlines()[-5:]], ""
    what = f"{total[1]} checks passed; {len(EXPECTED[revision])} entries fail for a reason that is listed"
    if answer.returncode == 0:
        return [], what
    # After the total come the expected failures, the unexpected ones, and those that are listed but pass.
    return [line for line in _COLOUR.sub("", summary[total.end() :]).splitlines() if line.strip()], what
