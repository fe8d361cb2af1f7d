"""The store on MongoDB: documents of entries, passages and vectors in one database that any number of servers share."""

from commonplace.backends.mongodb.store import MongoStore

__all__ = ["MongoStore"]
