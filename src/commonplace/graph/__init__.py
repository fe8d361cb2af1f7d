"""Graphs of agents with a memory: memory nodes and connectors, chat models, agents, and a loader."""

from __future__ import annotations

from commonplace.graph.agent import Agent, Run
from commonplace.graph.chat_model import AnthropicChat, CallModel, ChatModel, OpenAIChat, Tool
from commonplace.graph.loader import Graph, load_graph
from commonplace.graph.memory_node import MemoryConnector, MemoryNode, Message

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
