"""A machine whose bubblewrap does not work: the cause and the fix are named, and nothing runs with less."""

from __future__ import annotations

import json

from hostile.support.stage import APPARMOR, BUNDLES, agent_on, broken_bwrap
from processes.support.runtime import runtime


async def test_a_forbidden_bubblewrap_is_named_and_nothing_runs_bare() -> None:
    with runtime() as made:
        path = broken_bwrap(made.home.parent / "bin")
        facts = made.start(PATH=path)
        assert facts["isolation"] == "none"
        refused = made.action("apps.add", "add-1", path=str(BUNDLES / "bystander"))
        assert (refused["accepted"], refused["code"]) == (False, "isolation_insufficient")
        assert refused["detail"] == {"needed": "S3", "have": "none"}
        async with agent_on(made, "a") as stage:
            own = next(tool["id"] for tool in made.query("tools")["tools"] if tool["id"].startswith("whiteboard."))
            payload = await stage.call(own, {})
            assert payload["status"] == "rejected", payload
        assert [row for row in made.query("status")["instances"] if row["worker_pid"]] == []
        rows, _ = made.audit()
        assert not [row for row in rows if row["kind"] in ("worker.started", "worker.ready")]
        doctor = made.cli("doctor")
        for words in ("AppArmor", "apparmor_restrict_unprivileged_userns=0"):
            assert words in doctor.stdout, doctor.stdout
        layers = json.loads(made.cli("doctor", "--json").stdout)
        assert APPARMOR.removeprefix("bwrap: ") in json.dumps(layers)
        assert made.stop() == 0
        made.assert_clean()
        # Once it is mended, the next start finds it.
        assert made.start()["isolation"] == "S3"
        assert made.action("apps.add", "add-2", path=str(BUNDLES / "bystander"))["accepted"]
        async with agent_on(made, "b") as stage:
            assert await stage.completed("bystander.echo", {"text": "x"}) == {"text": "x", "version": 1}
        assert made.stop() == 0
