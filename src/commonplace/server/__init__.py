"""Servers: one memory, offered to programs that speak a protocol."""
