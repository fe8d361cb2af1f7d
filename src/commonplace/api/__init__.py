"""The HTTP interface as one table of operations, the JSON forms of what it sends, and the client made from it."""
