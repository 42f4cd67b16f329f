"""How much of what stays one worker may cause in a minute. Owns ``BUDGETS``.

What a worker asks for leaves rows for ever: records, the timeline, the audit; and so does every refusal. Both are
counted per instance and minute, so that no worker can fill the disk. Over the first count it is refused by name; over
the second, which counts refusals, it is ended as a violation. What others bound already (deliveries, results, patches)
is not counted.
"""

from __future__ import annotations

import msgspec

from lineup_protocol import limits
from lineup_protocol.errors import LineUpError
from lineup_supervisor.core.ctx import Ctx
from lineup_supervisor.core.schema import BUDGETS, Budget

replace = msgspec.structs.replace

WINDOW_MS = 60_000
REPORTS_WINDOW_MS = 1_000
_COUNTED = frozenset(
    {
        "ui.request",
        "ui.cancel",
        "lifecycle.foreground",
        "lifecycle.background",
        "lifecycle.close",
        "surface.open",
        "surface.close",
        "capability.request",
        "state.save",
        "artifact.submit",
        "conversation.send_text",
    }
)


def charge(ctx: Ctx, instance_id: str, type_: str) -> None:
    """Count one message of this type.

    Raises:
        LineUpError: ``rate_limited``.
    """
    if type_ not in _COUNTED:
        return
    budget = _current(ctx, instance_id)
    if budget.taken >= limits.WORKER_RECORDS_PER_MINUTE_MAX:
        most = limits.WORKER_RECORDS_PER_MINUTE_MAX
        raise LineUpError("rate_limited", f"more than {most} requests in a minute", detail={"per_minute_max": most})
    ctx.put(BUDGETS, (instance_id,), replace(budget, taken=budget.taken + 1))


def may_report(ctx: Ctx, instance_id: str) -> bool:
    """Count one progress report. False if there were enough of them in this second: it need not be kept."""
    budget = _current(ctx, instance_id)
    if ctx.now.steady_ms - budget.reports_since_ms >= REPORTS_WINDOW_MS:
        budget = replace(budget, reports=0, reports_since_ms=ctx.now.steady_ms)
    if budget.reports >= limits.PROGRESS_PER_SECOND_MAX:
        return False
    ctx.put(BUDGETS, (instance_id,), replace(budget, reports=budget.reports + 1))
    return True


def note_refusal(ctx: Ctx, instance_id: str) -> bool:
    """Count one refused message. False if that was one too many; then the count begins anew."""
    budget = _current(ctx, instance_id)
    is_over = budget.refused >= limits.WORKER_REFUSALS_PER_MINUTE_MAX
    ctx.put(BUDGETS, (instance_id,), replace(budget, refused=0 if is_over else budget.refused + 1))
    return not is_over


def forget(ctx: Ctx, instance_id: str) -> None:
    ctx.delete(BUDGETS, (instance_id,))


def _current(ctx: Ctx, instance_id: str) -> Budget:
    budget = ctx.get(BUDGETS, (instance_id,))
    if budget is None or ctx.now.steady_ms - budget.since_ms >= WINDOW_MS:
        fresh = Budget(since_ms=ctx.now.steady_ms)
        if budget is None:
            return fresh
        return replace(fresh, reports=budget.reports, reports_since_ms=budget.reports_since_ms)
    return budget
