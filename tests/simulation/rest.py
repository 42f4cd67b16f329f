"""How a run comes to rest: no more faults and nothing new, until nobody has anything to do and no timer is armed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkers.history import Waits
from simulation.mix import calm

if TYPE_CHECKING:
    from simulation.agents import SimAgent
    from simulation.workers import Process
    from simulation.world import World

REST_ROUNDS_MAX = 4_000
ASKED_AGAIN_MAX = 100  # times that agents ask again when nothing else will happen
CALLS_FOR_PLACES = 3  # of each agent, so that there is somebody to wait
PLACE_MS_MAX = 10_000  # longer than any delay before a start, and than any grace


def come_to_rest(world: World) -> None:
    """No more faults and nothing new: all that is open has to come to its end in a bounded number of rounds."""
    world.mix = calm(world.mix)
    world.resting = True
    world.store.full = False
    world.store.fails_in = None
    if world.frozen:
        world.thaw()
    _wait_for_places(world)
    quiet, asked = False, 0
    world.rng.seed(world.seed * 1_000_003 - 1)
    for _ in range(REST_ROUNDS_MAX):
        if _round(world):
            continue
        if not quiet:
            world.operator.look()
            quiet = True
        if _advance(world):
            _ask_again(world)
        elif asked > ASKED_AGAIN_MAX or not _ask_again(world):
            world.history.settled = True
            break
        else:
            asked += 1
    else:
        world.history.unrest = f"still busy after {REST_ROUNDS_MAX} rounds: {_busy_with(world)}"
    _read_the_end(world)


def _wait_for_places(world: World) -> None:
    """Nobody but the person has anything left to do, for as long as any place takes: who still waits for one then?"""
    world.resting, quiet_ms = False, 0
    for agent in world.agents:
        for _ in range(CALLS_FOR_PLACES if agent.link is not None and agent.tools else 0):
            agent.call()
    for _ in range(REST_ROUNDS_MAX):
        if _round_without_people(world):
            quiet_ms = 0
        elif quiet_ms >= PLACE_MS_MAX:
            break
        else:
            world.pass_time(1_000)
            quiet_ms += 1_000
    else:
        world.history.unrest = f"still busy after {REST_ROUNDS_MAX} rounds without people: {_busy_with(world)}"
    world.resting = True
    if world.operator.can_ask:
        world.operator.look()
        world.history.waits = _who_waits(world)


def _round_without_people(world: World) -> bool:
    if world.engine is None:
        world.boot()
    if world.retry_at_ms is not None:
        world.pass_time(max(0, world.retry_at_ms - world.steady_ms))
    for link in [link for link in world.links.values() if link.to_runtime]:
        link.agent.carry(link)
    busy = world.can_pump
    while world.can_pump:
        world.pump()
    for process in list(world.processes.values()):
        if process.state in ("spawning", "hung") or process.to_runtime or process.to_worker or process.todo:
            busy |= _process_round(process)
    return busy


def _who_waits(world: World) -> Waits:
    look = world.history.looks[-1]
    rows = {row["instance_id"]: row for row in look.status["instances"]}
    called = {
        record["instance_id"]
        for record in look.calls
        if record["status"] == "waiting_for_app" and "interaction_id" not in record
    }
    shown = {world.person.surfaces[id_]["instance_id"] for id_ in world.person.shown if id_ in world.person.surfaces}
    waits = Waits()
    for instance_id in called & rows.keys():
        if rows[instance_id]["worker_pid"] is None:
            waits.waiting.append((instance_id, rows[instance_id]["app_scope"]))
    for process in world.processes.values():
        waits.places.append((process.instance_id, process.app_scope))
        idle = process.state == "running" and process.session.phase == "open" and process.kill_at_ms is None
        if idle and not process.open and process.instance_id not in shown:
            waits.could_go.append((process.instance_id, process.app_scope))
    return waits


def _round(world: World) -> bool:
    """Everybody does what there is to do. False if nobody had anything."""
    busy = bool(world.operator.late)
    world.operator.answer_late()
    if world.engine is None:
        world.boot()
        busy = True
    if world.retry_at_ms is not None:
        world.pass_time(max(0, world.retry_at_ms - world.steady_ms))
    while world.can_pump:
        world.pump()
        busy = True
        if world.engine is None:
            return True
    for agent in world.agents:
        busy |= _agent_round(agent)
    for process in list(world.processes.values()):
        busy |= _process_round(process)
    if busy or world.queue:
        return busy
    if world.person.rest():
        _ask_again(world)
        return True
    _look_at_the_screen(world)
    return False


def _ask_again(world: World) -> bool:
    """Something has happened: there may be room now for what was refused for want of it. False if nothing was."""
    refused = False
    for agent in world.agents:
        limited = {id_ for id_, receipt in agent.receipts.items() if receipt.get("code") == "rate_limited"}
        refused |= bool(limited & agent.asked_again)
        agent.asked_again -= limited
    return refused


def _agent_round(agent: SimAgent) -> bool:
    link = agent.link
    if link is None:
        agent.connect()
        link = agent.link
    assert link is not None
    for each in list(agent.links):
        if each.to_agent:
            agent.hear(each)
            return True
        if each.to_runtime:
            agent.carry(each)
            return True
    if agent.seen > agent.acked:
        agent.acked = agent.seen
        agent._say("ack", {"seq": agent.seen})
        return True
    for frame in agent.unresolved():
        receipt = agent.receipts.get(frame["message_id"], {"accepted": False})
        if not receipt["accepted"] and frame["message_id"] not in agent.asked_again:
            agent.asked_again.add(frame["message_id"])
            agent.send(frame)
            return True
    return False


def _process_round(process: Process) -> bool:
    if process.state == "spawning":
        process.spawn()
    elif process.state == "hung":
        process.die("hung")
    elif process.to_runtime:
        process.carry()
    elif process.to_worker or process.todo:
        process.act()
    else:
        process._idle()
        return bool(process.todo)
    return True


def _look_at_the_screen(world: World) -> None:
    """Nothing is under way: whatever a person has in front of them has begun to run at some time."""
    for id_, row in world.person.instances.items():
        if row["state"] == "foreground" and row["app_scope"] != "chat" and row["incarnation"] == 0:
            words = f"{id_} of {row['app_scope']} is in the foreground and was never started"
            if words not in world.history.stale:
                world.history.stale.append(words)


def _compare_beliefs(world: World) -> None:
    """Nothing is under way: what each worker believes of its instance is what Hosts know."""
    for process in world.processes.values():
        session = process.session
        row = world.person.instances.get(process.instance_id)
        if process.state != "running" or session.phase != "open" or process.kill_at_ms is not None or row is None:
            continue
        believed, known = session.projection.context.state, row["state"]
        if known not in (believed, "closed"):
            world.history.stale.append(f"{process.key} believes to be {believed} and is {known}")
        for operation_id, operation in session.projection.operations.items():
            shown = world.person.operations.get(operation_id)
            if shown is not None and shown["state"] != operation.state:
                world.history.stale.append(f"{process.key} believes {operation_id} {operation.state}: {shown['state']}")
        for surface_id, surface in session.projection.surfaces.items():
            page = world.person.surfaces.get(surface_id)
            if page is not None and page["status"] == "open" and page["revision"] != surface.revision:
                world.history.stale.append(
                    f"{process.key} has {surface_id} at {surface.revision}, not {page['revision']}"
                )


def _advance(world: World) -> bool:
    """Go on to the next timer; False if none is armed."""
    _compare_beliefs(world)
    wall, steady = world.due
    waits = [at - clock for at, clock in ((wall, world.wall_ms), (steady, world.steady_ms)) if at is not None]
    waits += [p.kill_at_ms - world.steady_ms for p in world.processes.values() if p.kill_at_ms is not None]
    if world.retry_at_ms is not None:
        waits.append(world.retry_at_ms - world.steady_ms)
    if not waits:
        return False
    world.pass_time(max(0, min(waits)))
    return True


def _busy_with(world: World) -> str:
    processes = [(process.key, process.state, list(process.todo)[:3]) for process in world.processes.values()]
    return f"queue {len(world.queue)}, due {world.due}, processes {processes}"


def _read_the_end(world: World) -> None:
    """Ask the Runtime for its status and its whole audit, as an operator would."""
    if world.engine is None:
        world.boot()
    while world.can_pump:
        world.pump()
    world.operator.look()
    world.history.processes = [f"{p.key} {p.state}" for p in world.processes.values()]
