"""Background embedding, search and undo, on any store."""
