"""The backend for many servers: PostgreSQL with pgvector."""

from commonplace.backends.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
