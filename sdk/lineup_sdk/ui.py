"""``sdk.ui``: standard interactions. The Runtime owns the record, decides how it is shown, and brings the answer back.

A question that a handler asks with ``ask`` survives a crash: its key is derived from the call (or message) and the
question, so when the call or message comes again it finds the same record, answered or not, and the person is not asked
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from lineup_sdk.link import Link, Listeners, Unsubscribe, current_scope, given
from lineup_sdk.receipts import CommandReceipt
from lineup_sdk.records import Interaction
from lineup_sdk.values import Value

Presentation = Literal["default", "inline", "modal"]


class Notice(Value):
    """Something to know; the person acknowledges it."""

    title: str
    message: str
    acknowledge_label: str | None = None

    def as_request(self) -> dict[str, Any]:
        return given(kind="notice", title=self.title, message=self.message, acknowledge_label=self.acknowledge_label)


class Action(Value):
    """One thing to choose."""

    id: str
    label: str
    description: str | None = None

    def as_request(self) -> dict[str, Any]:
        return given(id=self.id, label=self.label, description=self.description)


class Choice(Value):
    """One or more of a few actions; answered by ``action_ids``."""

    title: str
    prompt: str
    actions: Sequence[Action]
    mode: Literal["single-choice", "multi-choice", "button"] = "single-choice"

    def as_request(self) -> dict[str, Any]:
        actions = [action.as_request() for action in self.actions]
        return {"kind": "choice", "title": self.title, "prompt": self.prompt, "mode": self.mode, "actions": actions}


class Confirm(Value):
    """Yes or no to something that can be explained; answered by ``approved``."""

    title: str
    prompt: str
    approve_label: str | None = None
    cancel_label: str | None = None

    def as_request(self) -> dict[str, Any]:
        return given(
            kind="confirm",
            title=self.title,
            prompt=self.prompt,
            approve_label=self.approve_label,
            cancel_label=self.cancel_label,
        )


class InputField(Value):
    """One field of a form. Lengths count characters; ``minimum`` and ``maximum`` are for numbers."""

    id: str
    label: str
    type: Literal["text", "textarea", "number"] = "text"
    required: bool | None = None
    placeholder: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    minimum: float | None = None
    maximum: float | None = None

    def as_request(self) -> dict[str, Any]:
        return given(**{name: getattr(self, name) for name in self.__match_args__})


class Input(Value):
    """A small form; answered by ``values``."""

    title: str
    prompt: str
    fields: Sequence[InputField]
    submit_label: str | None = None
    cancel_label: str | None = None

    def as_request(self) -> dict[str, Any]:
        return given(
            kind="input",
            title=self.title,
            prompt=self.prompt,
            fields=[one.as_request() for one in self.fields],
            submit_label=self.submit_label,
            cancel_label=self.cancel_label,
        )


Request = Notice | Choice | Confirm | Input


class InteractionReceipt(CommandReceipt):
    """The receipt of ``sdk.ui.request``, with the way to the person's answer."""

    interaction_id: str | None = None
    _link: Link | None = None

    async def result(self) -> Interaction:
        """Wait until the interaction is settled, however long the person takes.

        Raises:
            RequestRefused: if the request was not accepted.
        """
        self.raise_if_refused()
        assert self._link is not None
        assert self.interaction_id is not None, "an accepted ui.request names its interaction"
        known = self._link.projection.interactions.get(self.interaction_id)
        if known is not None and known.settled:
            return known
        return await self._link.interactions_awaited.wait(self.interaction_id)


class UIAPI:
    """Questions to the person. Who asks is stamped by the Runtime and cannot be passed in."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listeners: Listeners[Interaction] = Listeners()

    async def request(
        self,
        request: Request,
        *,
        parent_call_id: str | None = None,
        presentation: Presentation | None = None,
        expires_at: str | None = None,
        key: str | None = None,
    ) -> InteractionReceipt:
        """Ask; the receipt says that the question is kept, not that it is answered.

        ``parent_call_id``: an open call of this instance; the person's time then does not count against its timeout.
        ``presentation``: a preference, policy may lower it. ``expires_at``: RFC 3339 UTC. ``key``: a repeat of the same
        request with the same key finds the same interaction instead of asking again. A question under a call and
        without a key is cancelled when this process ends, as nothing could find it again.
        """
        body = given(
            request=request.as_request(),
            parent_call_id=parent_call_id,
            presentation=presentation,
            expires_at=expires_at,
            key=key,
        )
        receipt = await self._link.command("ui.request", body)
        return InteractionReceipt(
            receipt.accepted, receipt.code, receipt.message, receipt.detail, _interaction_id(receipt), self._link
        )

    async def ask(
        self,
        request: Request,
        *,
        parent_call_id: str | None = None,
        presentation: Presentation | None = None,
        expires_at: str | None = None,
        key: str | None = None,
    ) -> Interaction:
        """Ask and wait for the person. Within a tool handler the question belongs to the handler's call by default.

        Look at ``answered`` first: the person may cancel, and a question may expire.

        Raises:
            RequestRefused: if the Runtime refused the question.
        """
        scope = current_scope.get()
        if scope is not None:
            key = key or scope.question_key(request.as_request())
            if parent_call_id is None and scope.call is not None and self._is_open(scope.call.call_id):
                parent_call_id = scope.call.call_id
        receipt = await self.request(
            request, parent_call_id=parent_call_id, presentation=presentation, expires_at=expires_at, key=key
        )
        return await receipt.result()

    def _is_open(self, call_id: str) -> bool:
        return call_id in self._link.projection.calls

    def get(self, interaction_id: str) -> Interaction | None:
        """One interaction of this instance, as last heard of."""
        return self._link.projection.interactions.get(interaction_id)

    def list(self) -> list[Interaction]:
        """Those that are not settled."""
        return [one for one in self._link.projection.interactions.values() if not one.settled]

    def subscribe(self, listener: Callable[[Interaction], None]) -> Unsubscribe:
        """Hear of every change of this instance's interactions."""
        return self._listeners.subscribe(listener)

    async def cancel(self, interaction_id: str, reason: str | None = None) -> CommandReceipt:
        """Take a question back; refused with ``interaction_already_final`` once it is answered."""
        return await self._link.command("ui.cancel", given(interaction_id=interaction_id, reason=reason))


def _interaction_id(receipt: CommandReceipt) -> str | None:
    if not receipt.accepted or not isinstance(receipt.detail, dict):
        return None
    row = receipt.detail.get("interaction")
    found = row.get("interaction_id") if isinstance(row, dict) else receipt.detail.get("interaction_id")
    return found if isinstance(found, str) else None
