"""Servers: the memory over HTTP and MCP."""
