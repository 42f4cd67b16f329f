"""Interact: where a person and the agent talk, and what asks the agent's questions.

The Runtime keeps texts, questions and answers and shows them; this app takes them over and turns what came of a
question into the result of the call that asked it. It keeps no state of its own.
"""

from __future__ import annotations

from lineup_sdk import SDK, Interaction, MiniApp, TextMessage, ToolCall

app = MiniApp()

# The modes in which a person can meet the agent. Audio and video keep their place in the life cycle; no media yet.
MODES = {"im": True, "audio": False, "video": False}


class ModeNotAvailable(Exception):
    """This instance was asked for in a mode that is defined but not built."""


@app.on_start
async def start(sdk: SDK) -> None:
    """Refuse a mode that cannot be served, rather than pretend. No mode is text."""
    mode = sdk.context.mode or "im"
    if not MODES.get(mode, False):
        available = ", ".join(name for name, built in MODES.items() if built)
        raise ModeNotAvailable(f"Interact has no {mode} mode here; available: {available}")


@app.on_message
async def take_text(message: TextMessage, sdk: SDK) -> None:
    """The text stands in the timeline already; returning takes it over."""


@app.tool("notice")
async def notice(call: ToolCall, sdk: SDK) -> None:
    """The Runtime has asked the person; the answer ends the call (see ``answered``). So for all four."""


@app.tool("choice")
async def choice(call: ToolCall, sdk: SDK) -> None: ...


@app.tool("confirm")
async def confirm(call: ToolCall, sdk: SDK) -> None: ...


@app.tool("input")
async def input_(call: ToolCall, sdk: SDK) -> None: ...


@app.on_interaction
async def answered(interaction: Interaction, sdk: SDK) -> None:
    """What came of an agent's question becomes the result of its call. Again after a crash: the Runtime then
    says that the call has its result, which is as good."""
    call_id = interaction.parent_call_id
    if interaction.source != "agent_tool" or call_id is None:
        return
    if interaction.answered:
        await sdk.tools.complete(call_id, interaction.result or {})
    elif interaction.status == "cancelled":
        await sdk.tools.cancel(call_id, interaction.reason or "cancelled by the person")
    elif interaction.status == "expired":
        await sdk.tools.fail(call_id, "interaction_expired", "nobody answered in time")
    else:
        await sdk.tools.fail(call_id, "interaction_failed", interaction.reason or "the question could not be asked")
