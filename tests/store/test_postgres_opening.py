"""What opening a book on PostgreSQL asks of the server and of the login, and what it says where that is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from pooler import Pooler

import commonplace
from commonplace.backends.postgres import PostgresStore
from commonplace.backends.postgres.connection import translate
from commonplace.cli import main
from commonplace.errors import CommonplaceError, ConfigurationError, InvalidInput, Unavailable
from postgres_server import empty, shared_book, shared_server


@pytest.fixture
def url() -> str:
    return shared_server().create_database()


def small(url: str) -> str:
    return url if "?" in url else f"{url}?partitions=2"


def use(url: str) -> None:
    with commonplace.open(small(url), background=False) as book:
        space = book.space("user", "u1")
        space.files.write("/hello", "a text to be found")
        assert space.files.read("/hello") == "a text to be found"
        assert book.verify() == []


# pgvector


def set_vector_version(url: str, version: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION IF NOT EXISTS vector")
        admin.execute("UPDATE pg_extension SET extversion = %s WHERE extname = 'vector'", (version,))


@pytest.mark.promise("postgres-needs-pgvector")
@pytest.mark.parametrize("has_schema", [False, True], ids=["empty", "in use"])
def test_a_pgvector_that_is_too_old_is_refused_when_the_book_is_opened(url: str, has_schema: bool) -> None:
    """With pgvector 0.7 a book opened and worked, until past 20,000 passages every search failed."""
    if has_schema:
        use(url)
    set_vector_version(url, "0.7.4")
    with pytest.raises(ConfigurationError) as refusal:
        commonplace.open(small(url), background=False)
    told = str(refusal.value)
    assert "has pgvector 0.7.4; 0.8 or newer is needed" in told
    assert "ALTER EXTENSION vector UPDATE" in told
    assert "install" not in told  # the server has a newer one already
    with psycopg.connect(url) as connection:
        made = connection.execute("SELECT to_regclass('commonplace.entry') IS NOT NULL").fetchone()
    assert made == (has_schema,)
    for enough in ("0.8.0", "0.10.1", "1.0"):
        set_vector_version(url, enough)
        use(url)


# Roles


@pytest.fixture
def managed(url: str) -> str:
    """The address of a database that belongs to a login with CREATEROLE, as managed databases give it."""
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE owner_{name} LOGIN CREATEROLE".encode())
        admin.execute(f"ALTER DATABASE {name} OWNER TO owner_{name}".encode())
    return f"{shared_server().url(name, f'owner_{name}')}?schema=own_{name}&partitions=2"


@pytest.mark.promise("postgres-migrates-without-superuser")
def test_a_login_that_may_create_roles_prepares_its_database_where_pgvector_is(url: str, managed: str) -> None:
    """Since PostgreSQL 16 it failed with `must be able to SET ROLE`: who creates a role may not become it by that."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION vector")
    assert main(["--db", managed, "migrate"]) == 0
    use(managed)


@pytest.mark.promise("postgres-migrates-without-superuser")
def test_a_login_that_may_create_roles_is_told_to_have_pgvector_created_and_no_more(url: str, managed: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        commonplace.open(managed, background=False)
    advice = str(refusal.value).partition("start again:\n")[2]
    assert advice == "  CREATE EXTENSION IF NOT EXISTS vector;"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(advice.encode())
    use(managed)


@pytest.mark.promise("postgres-admin-sql")
def test_a_login_that_lacks_only_its_membership_is_told_the_grant_alone(url: str, managed: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION vector")
        use(managed)
        name = url.rpartition("/")[2]
        admin.execute(f"CREATE ROLE plain_{name} LOGIN NOINHERIT".encode())
        plain = managed.replace("owner_", "plain_", 1)
        with pytest.raises(ConfigurationError) as refusal:
            commonplace.open(plain, background=False)
        advice = str(refusal.value)
        assert advice.partition("start again:\n")[2] == f'  GRANT own_{name}_system, own_{name}_app TO "plain_{name}";'
        admin.execute(advice.partition("start again:\n")[2].encode())
    use(plain)


# Poolers


@pytest.fixture(params=["transaction", "session"])
def pooled(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    empty(shared_book())
    pooler = Pooler(shared_server().port, by_transaction=request.param == "transaction")
    yield request.param, shared_book().replace(str(urlsplit(shared_book()).port), str(pooler.port), 1)
    pooler.close()


@pytest.mark.promise("postgres-poolers")
def test_a_pooler_of_transactions_is_told_at_once_and_one_of_sessions_works(pooled: tuple[str, str]) -> None:
    """Behind PgBouncer in transaction mode calls failed now and then, with the advice to run `commonplace migrate`."""
    mode, url = pooled
    use(shared_book())
    if mode == "session":
        use(url)
        return
    with pytest.raises(ConfigurationError, match="pool_mode = session") as refusal:
        commonplace.open(small(url), background=False)
    assert "migrate" not in str(refusal.value)


# Words


@pytest.mark.parametrize(
    ("reason", "kind", "told"),
    [
        (
            'connection to server at "db", port 5432 failed: SSL error: certificate verify failed',
            ConfigurationError,
            "over TLS",
        ),
        ('server certificate for "a" does not match host name "b"', ConfigurationError, "over TLS"),
        ('root certificate file "/r.crt" does not exist\nEither provide the file', ConfigurationError, "sslrootcert"),
        ('private key file "/k" has group or world access', ConfigurationError, "sslkey"),
        (
            'no pg_hba.conf entry for host "h", user "u", database "d", no encryption',
            ConfigurationError,
            "sslmode=require",
        ),
        ("SSL connection has been closed unexpectedly", Unavailable, "try again"),
        ("SSL error: unexpected eof while reading", Unavailable, "try again"),
    ],
)
def test_what_libpq_says_of_tls_is_told_with_the_setting_to_change(
    reason: str, kind: type[CommonplaceError], told: str
) -> None:
    error = translate(psycopg.OperationalError(f"connection failed: {reason}"), "postgresql://db/d")
    assert type(error) is kind
    assert told in str(error)


@pytest.mark.parametrize(("query", "told"), [("?sslmode=require", "over TLS"), ("?sslmode=bogus", "correct sslmode")])
def test_an_address_whose_tls_cannot_work_names_the_setting(query: str, told: str) -> None:
    """It said that the server cannot be reached and to try again, which never helps."""
    with pytest.raises(ConfigurationError, match=told):
        PostgresStore(shared_server().url() + query)


def test_doctor_speaks_of_rows_and_not_of_a_file(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`doctor` on PostgreSQL said that the file was whole, and blamed the model when the database was away."""
    main(["--db", small(url), "doctor"])
    told = capsys.readouterr().out
    assert "the rows are complete, and the indexes agree with the texts" in told
    assert "file" not in told


@pytest.mark.parametrize("written", ["userinfo", "query"])
def test_no_command_shows_the_password_of_an_address(
    url: str, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    """`doctor` and a deletion tell the next command to type, and showed the password of --db in it."""
    address = small(url)
    if written == "userinfo":
        address = address.replace("@", ":hunter2@")
    else:
        address += "&password=hunter2"
    assert "hunter2" in address
    assert main(["--db", address, "add", "Ana likes tea", "--json"]) == 0
    key = json.loads(capsys.readouterr().out)["id"]
    for arguments in (["doctor"], ["stats"], ["rm", key]):
        assert main(["--db", address, *arguments]) == 0
        told = capsys.readouterr()
        assert "hunter2" not in told.out + told.err
        if arguments != ["stats"]:
            assert "YOUR_PASSWORD" in told.out + told.err


def test_doctor_does_not_blame_the_model_for_what_the_database_lacks(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(book: commonplace.Book, **options: object) -> list[str]:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("DROP TABLE commonplace.model")
        return []

    monkeypatch.setattr(commonplace.Book, "verify", verify)
    assert main(["--db", small(url), "doctor"]) == 1
    (vectors,) = [line for line in capsys.readouterr().out.splitlines() if "  vectors  " in line]
    assert "the database lacks a part of the schema" in vectors
    assert "migrate" not in vectors
    assert "reindex" not in vectors


def test_an_unknown_scheme_is_told_which_there_are() -> None:
    """The error named files alone, to somebody who had misspelt postgresql://."""
    with pytest.raises(ConfigurationError, match=r"unsupported URL scheme mysql://; .* postgresql://"):
        commonplace.open("mysql://host/database")


# Durability


@pytest.mark.promise("postgres-durability")
@pytest.mark.parametrize(("durability", "waits"), [("full", "on"), ("normal", "off")])
def test_durability_decides_whether_a_commit_waits_for_the_disk(url: str, durability: str, waits: str) -> None:
    """`durability="normal"` was accepted and did nothing; the test server's own setting is `off`."""
    with commonplace.open(small(url), durability=durability, background=False) as book:  # type: ignore[arg-type]
        assert isinstance(book.store, PostgresStore)
        assert book.store._runner.system(lambda session: session.rows("SHOW synchronous_commit")) == [(waits,)]


@pytest.mark.promise("postgres-durability")
def test_a_database_that_waits_longer_than_for_its_disk_goes_on_to_do_so(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = remote_apply".encode())
    with commonplace.open(small(url), background=False) as book:
        assert isinstance(book.store, PostgresStore)
        assert book.store._runner.system(lambda session: session.rows("SHOW synchronous_commit")) == [("remote_apply",)]


@pytest.mark.parametrize("place", [":memory:", "postgresql://127.0.0.1:1/x"])
def test_an_unknown_durability_is_refused_on_every_backend(place: str) -> None:
    with pytest.raises(InvalidInput, match="durability must be 'full' or 'normal', not 'fast'"):
        commonplace.open(place, durability="fast")  # type: ignore[arg-type]


def test_what_cannot_be_distributed_is_told_what_it_lacks(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "book.db")
    commonplace.open(file).close()
    for place, told in ((url, "has no Citus"), (file, "only a book on PostgreSQL with Citus")):
        assert main(["--db", place, "migrate", "--distributed"]) != 0
        assert told in capsys.readouterr().err
