"""The pytest plugin in a project of its own: it finds the bundle, runs it, and costs nothing where it is not used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MANIFEST = """{
  "app_scope": "greeter", "version": "1.0.0", "kind": "installed", "entry": "app:app",
  "tools": [{
    "id": "greeter.hello", "version": 1, "title": "Hello", "description": "Greets.", "handling": "direct",
    "target": {"app_scope": "greeter", "requires_foreground": false, "restore_previous_focus": false},
    "input_schema": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}},
                     "additionalProperties": false},
    "output_schema": {"type": "object", "required": ["greeting"], "properties": {"greeting": {"type": "string"}},
                      "additionalProperties": false}
  }],
  "host": {"min_version": "1.0", "surface_required": false}
}"""
APP = """
from lineup_sdk import MiniApp
from words import greet
app = MiniApp()

@app.tool("greeter.hello")
async def hello(call, sdk):
    return {"greeting": greet(call.input["name"])}
"""
TEST = """
async def test_hello(stub_runtime, stub_clock):
    call = await stub_runtime.call("greeter.hello", {"name": "Ada"})
    assert await call.wait() == {"greeting": "Hello, Ada"}
    before = stub_clock.wall_ms
    await stub_runtime.advance(5)
    assert stub_clock.wall_ms == before + 5000
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "-o",
        options[0],
        "-o",
        options[1],
    ]
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    bundle = tmp_path / "greeter"
    bundle.mkdir()
    (bundle / "miniapp.json").write_text(MANIFEST)
    (bundle / "app.py").write_text(APP)
    (bundle / "words.py").write_text('def greet(name):\n    return f"Hello, {name}"\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.mark.parametrize("where", ["inside", "beside"])
def test_the_bundle_is_found(project: Path, where: str) -> None:
    folder = project / "greeter" if where == "inside" else project
    (folder / "test_greeter.py").write_text(TEST)
    ended = run_pytest(project)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_bundle_is_configured(project: Path) -> None:
    (project / "greeter").rename(project / "elsewhere")
    (project / "other").mkdir()
    (project / "other" / "miniapp.json").write_text(MANIFEST)
    (project / "pytest.ini").write_text("[pytest]\nlineup_bundle = elsewhere\n")
    (project / "test_greeter.py").write_text(TEST)
    ended = run_pytest(project)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_no_bundle_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_x.py").write_text(TEST)
    ended = run_pytest(tmp_path)
    assert ended.returncode != 0
    assert "lineup_bundle" in ended.stdout


def test_loading_the_plugin_imports_nothing_of_the_runtime() -> None:
    code = "import sys, lineup_testkit.pytest_plugin; print([m for m in sys.modules if m.startswith('lineup_s')])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"
