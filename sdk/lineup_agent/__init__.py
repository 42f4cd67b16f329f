"""The client for authors of agents: one link to a LineUp Runtime, over which tools are called and texts go both ways.

async with AgentLink.from_home(agent_id="my-agent") as link:
    result = await link.call("confirm", {"title": "Lunch", "prompt": "Now?"}, conversation_id="c-1")
    if result.completed:
        await link.send_text("c-1", "Enjoy!" if result.unwrap()["approved"] else "Later, then.")
"""

from lineup_agent.calls import CallHandle
from lineup_agent.errors import (
    AgentLinkError,
    CallTimeout,
    LinkClosed,
    LinkRefused,
    MessageRefused,
    NoRuntime,
    TakenOver,
    ToolFailed,
)
from lineup_agent.link import AgentLink
from lineup_agent.model import Inventory, Progress, Text, ToolResult

__all__ = [
    "AgentLink",
    "AgentLinkError",
    "CallHandle",
    "CallTimeout",
    "Inventory",
    "LinkClosed",
    "LinkRefused",
    "MessageRefused",
    "NoRuntime",
    "Progress",
    "TakenOver",
    "Text",
    "ToolFailed",
    "ToolResult",
]
