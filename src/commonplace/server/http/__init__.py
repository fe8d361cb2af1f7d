"""The service over HTTP: REST at `/v1`, MCP at `/mcp`, Mastra's routes at `/api/memory`, health and metrics."""
