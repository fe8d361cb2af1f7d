"""The seed's messages, played over a real process, and its Node.js client as it is written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

import commonplace

from .conftest import NOTE, SECONDS, server_environment
from .seed_003 import DISCOVERY, EXCHANGES, INITIALIZE

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def masked(value: Any) -> Any:
    """What differs from run to run, replaced by its kind."""
    if isinstance(value, dict):
        return {
            key: "<similarity>" if key == "similarity" and 0 <= item <= 1 else masked(item)
            for key, item in value.items()
            if key != "notices"  # without a model, a search says so
        }
    if isinstance(value, list):
        return [masked(item) for item in value if not _is_notice(item)]
    if not isinstance(value, str):
        return value
    value = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", _UUID.sub("<id>", value))
    return re.sub(r'(?<="hash": ")[0-9a-f]{64}', "<hash>", re.sub(r"sim=[01]\.\d{3}", "sim=<similarity>", value))


def _is_notice(block: Any) -> bool:
    return isinstance(block, dict) and str(block.get("text")).startswith("Note: keywords only")


@pytest.mark.promise("mcp-seed-transcript")
def test_every_message_of_the_seed_is_answered_as_written(stdio):
    stdio.send(INITIALIZE)
    assert stdio.next()["result"]["protocolVersion"] == "2025-06-18"
    for request, group, names in DISCOVERY:
        stdio.send(request)
        answer = stdio.next()
        assert (answer["id"], [one["name"] for one in answer["result"][group]]) == (request["id"], names)
    last = ""
    for request, expected in EXCHANGES:
        stdio.send(json.dumps(request, ensure_ascii=False).replace("<id>", last))
        answer = stdio.next()
        for item in answer.get("result", {}).get("structuredContent", {}).get("items", []):
            last = item["id"]
        assert masked(answer) == expected
    assert stdio.end() == 0


@pytest.mark.promise("mcp-seed-transcript")
def test_saving_again_merges_tags_and_keeps_the_larger_confidence(opened):
    first = opened.call("memory_create", **{**NOTE, "tags": ["project:a"]})["structuredContent"]["items"][0]
    again = {**NOTE, "tags": ["project:b"], "confidence": 0.3}
    second = opened.call("memory_create", **again)["structuredContent"]["items"][0]
    assert second == {**first, "tags": ["project:a", "project:b"]}


NODE_CLIENT = """
import { spawn } from 'node:child_process';

const srv = spawn(process.argv[2], process.argv.slice(3), {
  stdio: ['pipe', 'pipe', 'pipe'],
  env: process.env,
});

function rpc(id, method, params) {
  srv.stdin.write(JSON.stringify({ jsonrpc: '2.0', id, method, params }) + '\\n');
}

srv.stdout.on('data', buf => {
  for (const line of buf.toString().trim().split('\\n')) {
    const msg = JSON.parse(line);
    // route by msg.id / handle results
    console.log('RPC <-', msg);
    if (msg.id === 'save1') srv.stdin.end();
  }
});

rpc('init', 'initialize', {
  protocolVersion: '2024-11-05',
  clientInfo: { name: 'agent', version: '1.0' },
});
rpc('list-tools', 'tools/list');

rpc('save1', 'tools/call', {
  name: 'memory_create',
  arguments: {
    type: 'runbook',
    content: { title: 'Restore from backup', steps: ['stop traffic', 'restore', 'verify'] },
    source: 'agent://pipeline/backup',
    tags: ['project:alpha', 'topic:resilience'],
    confidence: 0.95,
  },
});
"""


@pytest.mark.promise("mcp-seed-node-client")
def test_the_seeds_node_client_saves_a_memory(tmp_path):
    client = tmp_path / "client.mjs"
    client.write_text(NODE_CLIENT)
    done = subprocess.run(
        ["node", str(client), sys.executable, "-m", "commonplace.cli", "mcp"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=server_environment(tmp_path),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"id: '([\w-]+)'", done.stdout)[:3] == ["init", "list-tools", "save1"]
    with commonplace.open(tmp_path / "book.db", background=False) as book:
        (saved,) = book.space("user", "default").records.list().records
    assert (saved.type, saved.source, saved.tags) == (
        "runbook",
        "agent://pipeline/backup",
        ("project:alpha", "topic:resilience"),
    )
