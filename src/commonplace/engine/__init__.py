"""What is hard and is built once: embedding behind the writes, search, undo. Works on any store."""
