"""Folders of agents: how they are named, found, made and refused. Every statement of the service's first page."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import commonplace
from commonplace import ConfigurationError, InvalidInput, NotFound, Unavailable, agents
from commonplace.agents.memories import slug_of

AGENT = "a1b2c3d4-e5f6-7890-abcd-ef1234567890"
FOLDER = f"test-agent-{AGENT}"


@pytest.fixture
def service(tmp_path, monkeypatch):
    """The module's own functions, in a working directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COMMONPLACE_AGENTS", raising=False)
    monkeypatch.setenv("COMMONPLACE_MODELS", str(tmp_path / "no-models"))
    agents.close_all()
    yield agents
    agents.close_all()


@pytest.mark.promise("agents-create")
def test_create_agent_makes_a_folder_of_slug_and_uuid(service, tmp_path):
    agent_id = service.create_agent("Test Agent!")
    (folder,) = (tmp_path / "_tables" / "agents").iterdir()
    assert str(uuid.UUID(agent_id)) == agent_id
    assert folder.is_dir()
    assert folder.name == service.get_agent_folder_name(agent_id) == f"test-agent-{agent_id}"
    assert list(folder.iterdir()) == []


@pytest.mark.promise("agents-lazy")
def test_the_database_is_made_in_the_agents_folder_by_the_first_use_of_its_memory(service):
    agent_id = service.create_agent("Test Agent")
    folder = Path("_tables/agents") / service.get_agent_folder_name(agent_id)
    memory = service.get_agent_memory(agent_id)
    assert list(folder.iterdir()) == []

    thread = memory.create_thread("u-1", title="Kept")
    assert (folder / "memory.db").is_file()
    service.close_all()
    with commonplace.open(folder / "memory.db", background=False) as book:
        assert book.namespaces() == [("agent", agent_id)]
        assert book.space("agent", agent_id).threads.get(thread.id, resource="u-1") == thread


@pytest.mark.promise("agents-lookup")
def test_an_agent_is_the_directory_whose_name_ends_with_its_id(service, tmp_path):
    base = tmp_path / "_tables" / "agents"
    base.mkdir(parents=True)
    (base / f"a-file-{AGENT}").write_text("no directory")
    (base / f"{FOLDER}-copy").mkdir()
    (base / AGENT).mkdir()
    (base / f"x{AGENT}").mkdir()
    (base / f"linked-{AGENT}").symlink_to(tmp_path, target_is_directory=True)
    assert service.get_agent_folder_name(AGENT) is None

    (base / FOLDER).mkdir()
    assert service.get_agent_folder_name(AGENT) == FOLDER
    assert service.get_agent_folder_name(AGENT.upper()) == FOLDER
    assert service.get_agent_memory(AGENT).agent_id == AGENT


@pytest.mark.promise("agents-lookup")
@pytest.mark.parametrize("agent_id", [AGENT, "", "x", "../..", None, 5, f"{AGENT}/..", "\x00", "\ud800"])
def test_asking_for_a_folders_name_never_raises(service, agent_id):
    assert service.get_agent_folder_name(agent_id) is None


@pytest.mark.promise("agents-not-found")
def test_an_agent_without_a_folder_is_not_found_and_the_base_folder_is_made(service, tmp_path):
    with pytest.raises(NotFound) as refused:
        service.get_agent_memory(AGENT)
    assert str(refused.value) == f"Agent folder not found for agentId: {AGENT}"
    assert list((tmp_path / "_tables" / "agents").iterdir()) == []


@pytest.mark.promise("agents-bad-id")
@pytest.mark.parametrize(
    "agent_id",
    [
        "",
        "agent",
        "..",
        f"../{AGENT}",
        f"x/{AGENT}",
        f"x\\{AGENT}",
        f"x-{AGENT}",
        AGENT.replace("-", ""),
        f"{{{AGENT}}}",
        f" {AGENT}",
        f"{AGENT}\n",
        AGENT[:-1] + "g",
        AGENT[:-1] + "٣",
        None,
        5,
        b"x",
    ],
)
def test_an_id_that_is_no_uuid_is_refused_before_anything_is_looked_at(service, tmp_path, agent_id):
    for call in (service.get_agent_memory, service.invalidate):
        with pytest.raises(InvalidInput, match="an agent id is a UUID such as"):
            call(agent_id)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.promise("agents-setting")
def test_the_base_folder_is_a_setting(service, tmp_path, monkeypatch):
    monkeypatch.setenv("COMMONPLACE_AGENTS", str(tmp_path / "elsewhere"))
    agent_id = service.create_agent("Ann")
    service.get_agent_memory(agent_id).create_thread()
    assert (tmp_path / "elsewhere" / f"ann-{agent_id}" / "memory.db").is_file()


@pytest.mark.promise("agents-one-instance")
def test_the_service_gives_every_caller_the_same_instance_until_it_is_invalidated_or_closed(service):
    agent_id = service.create_agent("Ann")
    memory = service.get_agent_memory(agent_id)
    assert service.get_agent_memory(agent_id) is memory

    service.invalidate(agent_id)
    anew = service.get_agent_memory(agent_id)
    assert anew is not memory
    thread = anew.create_thread(title="of both")
    assert memory.get_thread(thread.id) == thread

    service.close_all()
    with pytest.raises(Unavailable, match="call get_agent_memory again"):
        anew.get_thread(thread.id)
    assert service.get_agent_memory(agent_id).get_thread(thread.id) == thread


def test_two_agents_of_one_name_made_at_once_are_two(service):
    with ThreadPoolExecutor(8) as makers:
        made = list(makers.map(service.create_agent, ["Same name"] * 32))
    assert len(set(made)) == 32
    assert {service.get_agent_folder_name(agent_id) for agent_id in made} == {f"same-name-{one}" for one in made}


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Test Agent", "test-agent"),
        ("  Café -- Helper!  ", "cafe-helper"),
        ("../../etc/passwd", "etc-passwd"),
        ("日本", "agent"),
        ("...", "agent"),
        ("a" * 100, "a" * 60),
    ],
)
def test_a_name_becomes_a_slug_that_is_one_plain_folder_name(name, slug):
    assert slug_of(name) == slug
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x00", None, 5, "x" * 401])
def test_a_name_that_is_none_is_refused(service, tmp_path, name):
    with pytest.raises(InvalidInput):
        service.create_agent(name)
    assert list(tmp_path.iterdir()) == []


def test_a_base_folder_that_cannot_be_made_is_told_with_its_setting(service, tmp_path):
    (tmp_path / "_tables").write_text("a file")
    with pytest.raises(ConfigurationError, match="COMMONPLACE_AGENTS"):
        service.create_agent("Ann")
    assert service.get_agent_folder_name(AGENT) is None


@pytest.mark.parametrize(
    ("name", "value"), [("COMMONPLACE_AGENTS", "~no-such-user/x"), ("SEARCH_MAX_LIMIT", "many"), ("LOG_LEVEL", "loud")]
)
def test_wrong_settings_are_told_and_asking_for_a_folders_name_still_never_raises(service, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=f"{name} is {value!r}"):
        service.create_agent("Ann")
    assert service.get_agent_folder_name(AGENT) is None


def test_of_two_folders_of_one_agent_the_one_with_a_memory_is_taken(service, tmp_path):
    base = tmp_path / "_tables" / "agents"
    for name in ("aaa", "bbb"):
        (base / f"{name}-{AGENT}").mkdir(parents=True)
    assert service.get_agent_folder_name(AGENT) == f"aaa-{AGENT}"
    (base / f"bbb-{AGENT}" / "memory.db").touch()
    assert service.get_agent_folder_name(AGENT) == f"bbb-{AGENT}"


def test_a_folder_that_is_closed_is_told_by_its_name():
    code = """
import os, sys
from pathlib import Path
from commonplace import ConfigurationError
from commonplace.agents import AgentMemories, BookOptions
base = Path(sys.argv[1])
memories = AgentMemories(base, options=BookOptions(background=False), max_open=1)
agent_id = memories.create_agent("Ann")
memory = memories.get_agent_memory(agent_id)
memory.create_thread("u-1")
assert memory.list_threads().threads
folder = base / memories.get_agent_folder_name(agent_id)
if os.getuid() == 0:  # whom nothing is closed to
    for place in (base, *base.rglob("*")):
        os.chown(place, 65534, 65534)
    os.setuid(65534)

def told(call):
    try:
        call()
    except ConfigurationError as error:
        return str(error)

for place, name in ((folder, folder.name), (base, None)):
    place.chmod(0)
    for call in (lambda: memories.get_agent_memory(agent_id), memory.list_threads):
        assert f"cannot reach {place}" in told(call), told(call)
    assert memories.get_agent_folder_name(agent_id) == name
    place.chmod(0o700)
assert memory.list_threads().threads
"""
    with tempfile.TemporaryDirectory() as base:  # pytest's own folders are closed to others
        run = subprocess.run([sys.executable, "-c", code, base], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
