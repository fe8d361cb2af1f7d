"""Graphs of agents with a memory: memory nodes, the connector that shows them, call models, agents, and a loader."""

from __future__ import annotations

from commonplace.graph.agent import Agent, Run
from commonplace.graph.call_model import CallModel, ChatModel, Tool
from commonplace.graph.chat_anthropic import AnthropicChat
from commonplace.graph.chat_openai import OpenAIChat
from commonplace.graph.connector import MemoryConnector, Message
from commonplace.graph.loader import Graph, load_graph
from commonplace.graph.memory import MemoryNode

__all__ = [
    "Agent",
    "AnthropicChat",
    "CallModel",
    "ChatModel",
    "Graph",
    "MemoryConnector",
    "MemoryNode",
    "Message",
    "OpenAIChat",
    "Run",
    "Tool",
    "load_graph",
]
