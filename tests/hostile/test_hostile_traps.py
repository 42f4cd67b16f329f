"""Traps laid where the supervisor reads: a bundle's folder with links, pipes, devices and things that are too much."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.support.stage import RSS_GROWTH_BYTES_MAX, Meter, Stage, variant
from processes.support.waiting import until


def symlink_to_a_secret(bundle: Path, home: Path) -> None:
    (bundle / "notes.txt").symlink_to(home / "run" / "agent.token")


def symlinked_manifest(bundle: Path, home: Path) -> None:
    (bundle / "miniapp.json").rename(bundle / "real.json")
    (bundle / "miniapp.json").symlink_to("real.json")


def symlinked_folder(bundle: Path, home: Path) -> None:
    (bundle / "more").symlink_to(home)


def hard_link_to_a_secret(bundle: Path, home: Path) -> None:
    os.link(home / "run" / "agent.token", bundle / "notes.txt")


def fifo(bundle: Path, home: Path) -> None:
    os.mkfifo(bundle / "pipe.py")


def fifo_manifest(bundle: Path, home: Path) -> None:
    (bundle / "miniapp.json").unlink()
    os.mkfifo(bundle / "miniapp.json")


def unix_socket(bundle: Path, home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(bundle / "s"))


def huge_sparse_file(bundle: Path, home: Path) -> None:
    with (bundle / "big.bin").open("wb") as file:
        file.truncate(1 << 40)


def huge_manifest(bundle: Path, home: Path) -> None:
    (bundle / "miniapp.json").write_text('{"app_scope": "' + "x" * 20_000_000 + '"}')


def deep_manifest(bundle: Path, home: Path) -> None:
    (bundle / "miniapp.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)


def too_many_files(bundle: Path, home: Path) -> None:
    for number in range(1_100):
        (bundle / f"{number}.txt").touch()


def deep_folders(bundle: Path, home: Path) -> None:
    (bundle / "/".join(["d"] * 60)).mkdir(parents=True)


def entry_outside(bundle: Path, home: Path) -> None:
    text = (bundle / "miniapp.json").read_text()
    (bundle / "miniapp.json").write_text(text.replace('"app:app"', '"../../etc/passwd:app"'))


def not_a_folder(bundle: Path, home: Path) -> None:
    for path in bundle.iterdir():
        path.unlink()
    bundle.rmdir()
    os.mkfifo(bundle)


TRAPS = (
    symlink_to_a_secret,
    symlinked_manifest,
    symlinked_folder,
    hard_link_to_a_secret,
    fifo,
    fifo_manifest,
    unix_socket,
    huge_sparse_file,
    huge_manifest,
    deep_manifest,
    too_many_files,
    deep_folders,
    entry_outside,
    not_a_folder,
)


async def test_what_a_worker_leaves_is_cleared_without_a_trap(on_confined: Stage) -> None:
    """Links to what it may not read, folders without rights, and more of them in each other than can be recursed."""
    stage, home = on_confined, on_confined.runtime.home
    token = home / "run" / "agent.token"
    secret, places = token.read_bytes(), home / "run" / "w"
    links = {"token": str(token), "home": str(home), "apps": str(home / "apps")}
    apps = set((home / "apps").iterdir())
    before = set(places.iterdir())
    call_id = await stage.begin("prowler.litter", {"links": links, "depth": 1_200})
    result = (await stage.agent.result(call_id))["result"]
    assert result["left"] == sorted([*(f"link-{name}" for name in links), "closed", "closed too", "d"])
    (instance_id,) = {row["subjects"][1] for row in await stage.audited("call.routed") if call_id in row["subjects"]}
    assert len(set(places.iterdir()) - before) == 1
    answer = await asyncio.to_thread(
        stage.runtime.action, "instance.close", f"close-{call_id}", instance_id=instance_id
    )
    assert answer["accepted"], answer
    await until(lambda: set(places.iterdir()) <= before, 20, "what it left is gone")
    assert token.read_bytes() == secret
    assert set((home / "apps").iterdir()) == apps
    assert await stage.completed("bystander.echo", {"text": "x"}) == {"text": "x", "version": 1}


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
async def test_a_trap_is_refused_at_once_and_leaves_nothing(
    on_sandboxed: Stage, tmp_path: Path, trap: Callable[[Path, Path], None]
) -> None:
    home = on_sandboxed.runtime.home
    bundle = variant("crasher", tmp_path / "b")
    trap(bundle, home)
    before = set((home / "apps").iterdir())
    with Meter(on_sandboxed.runtime.pid) as meter:
        began = time.monotonic()
        answer = await asyncio.to_thread(
            on_sandboxed.runtime.action, "apps.add", f"trap-{trap.__name__}", path=str(bundle)
        )
        took = time.monotonic() - began
    assert not answer["accepted"], answer
    assert answer["code"] == "manifest_invalid"
    assert answer["message"]
    assert took < 5.0
    assert meter.growth < RSS_GROWTH_BYTES_MAX
    assert set((home / "apps").iterdir()) == before
    refused = [
        row for row in await on_sandboxed.audited("action.refused") if row["detail"].get("code") == answer["code"]
    ]
    assert refused, "a refusal stands in the audit"
