"""The conversation's timeline and the app sessions folded into it: what people and agents said, asked and got.

Owns ``TIMELINE``, ``SESSIONS`` and ``SESSION_ENTRIES``. An app's inner events never come here.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import msgspec

from lineup_supervisor.core.audit import audit
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import (
    CONVERSATIONS,
    SESSION_ENTRIES,
    SESSIONS,
    TIMELINE,
    Conversation,
    Entry,
    Instance,
    Interaction,
    Mark,
    Session,
)
from lineup_supervisor.core.tables import SESSION, SessionEvent, SessionState

replace = msgspec.structs.replace
_MARK = Mark()
FIRST_WORDS_LENGTH_MAX = 60  # what a side bar has room for
LOOKED_AT_LENGTH_MAX = 400  # of a text, for its first words
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")  # Markdown's link or picture: its words stay
_APART = ("interaction", "session")  # kinds of entries that are not counted
TRIM_ROWS_MAX = 16  # looked at for each new entry, so that a smaller bound is reached little by little


def append(ctx: Ctx, conversation_id: str, kind: str, author: str, *, session_id: str = "", **fields: Any) -> Entry:
    """Add one entry at the end. An ended session takes none: the entry stays in the main conversation alone.

    A conversation that nobody has named is called by the first words said in it.
    """
    conversation = ctx.need(CONVERSATIONS, (conversation_id,))
    n = conversation.next_entry
    title = conversation.title or (_first_words(fields["text"]) if kind == "text" else "")
    more = 1 if kind in _APART else 0
    named = replace(
        conversation, next_entry=n + 1, updated_ms=ctx.now.wall_ms, title=title, apart=conversation.apart + more
    )
    ctx.put(CONVERSATIONS, (conversation_id,), named)
    if session_id and not _is_open(ctx, session_id):
        session_id = ""
    entry = Entry(
        conversation_id=conversation_id,
        n=n,
        kind=kind,
        author=author,
        at_ms=ctx.now.wall_ms,
        cause=ctx.cause,
        session_id=session_id,
        apart=conversation.apart,
        **fields,
    )
    ctx.put(TIMELINE, (conversation_id, n), entry)
    if session_id:
        ctx.put(SESSION_ENTRIES, (session_id, n), _MARK)
    if ctx.policy.timeline_entries_max:
        _trim(ctx, named, n - named.apart - ctx.policy.timeline_entries_max)
    return entry


def _first_words(text: str) -> str:
    """Its first line with anything in it, without the marks of Markdown."""
    plain = _LINK.sub(r"\1", text[:LOOKED_AT_LENGTH_MAX]).replace("**", "").replace("`", "")
    lines = (line.strip(" \t\r#>*_~-") for line in plain.splitlines())
    return next((line for line in lines if line), "")[:FIRST_WORDS_LENGTH_MAX].rstrip()


def _trim(ctx: Ctx, conversation: Conversation, last: int) -> None:
    """Where the operator wants no more texts and calls than so many, the oldest make room, up to the ``last``th. What
    stands for a question or a session is passed over, once: it goes with its record.
    """
    key = (conversation.conversation_id,)
    trimmed = conversation.trimmed
    after = (*key, trimmed)
    for _, entry in list(islice(ctx.txn.scan(TIMELINE, key, after=after), TRIM_ROWS_MAX)):
        if entry.kind not in _APART:
            if entry.n - entry.apart > last:
                break
            ctx.delete(TIMELINE, (*key, entry.n))
            if entry.session_id:
                ctx.delete(SESSION_ENTRIES, (entry.session_id, entry.n))
        trimmed = entry.n
    if trimmed != conversation.trimmed:
        ctx.put(CONVERSATIONS, key, replace(conversation, trimmed=trimmed))


def _is_open(ctx: Ctx, session_id: str) -> bool:
    session = ctx.get(SESSIONS, (session_id,))
    if session is None:
        return False
    SESSION.next(session.state, SessionEvent.APPEND)
    return session.state == SessionState.OPEN


def interaction_asked(ctx: Ctx, interaction: Interaction) -> int:
    """Interact's own questions stand in the main conversation; an app's belong to its session as well.

    Returns the entry's place, 0 if there is none.
    """
    if interaction.source == "runtime_policy":
        return 0
    author = "agent" if interaction.source == "agent_tool" else "app"
    entry = append(
        ctx,
        interaction.conversation_id,
        "interaction",
        author,
        ref=interaction.interaction_id,
        session_id=interaction.session_id,
    )
    return entry.n


def open_session(ctx: Ctx, instance: Instance, title: str, continues: str = "") -> str:
    """The sub-conversation of a new instance; returns its id."""
    session = Session(
        session_id=ctx.new_id("s"),
        instance_id=instance.instance_id,
        app_scope=instance.app_scope,
        conversation_id=instance.conversation_id,
        state=SessionState.OPEN,
        title=title,
        created_ms=ctx.now.wall_ms,
        continues=continues,
    )
    ctx.put(SESSIONS, (session.session_id,), session)
    entry = append(ctx, instance.conversation_id, "session", "runtime", ref=session.session_id)
    ctx.put(SESSIONS, (session.session_id,), replace(session, entry=entry.n))
    audit(ctx, "session.opened", session.session_id, instance.instance_id, instance.conversation_id)
    return session.session_id


def end_session(ctx: Ctx, session_id: str, outcome: str) -> None:
    """From now on it is read-only."""
    session = ctx.get(SESSIONS, (session_id,))
    if session is None or session.state == SessionState.READ_ONLY:
        return
    state = SESSION.next(session.state, SessionEvent.END)
    ended = replace(session, state=state, ended_ms=ctx.now.wall_ms, outcome=outcome)
    ctx.put(SESSIONS, (session_id,), ended)
    audit(ctx, "session.ended", session_id, session.instance_id, session.conversation_id, outcome=outcome or None)


def note_call(
    ctx: Ctx, conversation_id: str, session_id: str, agent_id: str, call_id: str, what: str, text: str
) -> None:
    """What the agent asked of an app, or what came of it, in the app's session."""
    append(
        ctx,
        conversation_id,
        "call",
        "agent",
        session_id=session_id,
        ref=call_id,
        text=text,
        format=what,
        action_id=agent_id,
    )


def rename(ctx: Ctx, session_id: str, title: str) -> None:
    session = ctx.get(SESSIONS, (session_id,))
    if session is not None and session.state == SessionState.OPEN and title and session.title != title:
        ctx.put(SESSIONS, (session_id,), replace(session, title=title))
