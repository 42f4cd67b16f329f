"""Bundles for the stub: a folder (or an app object with its manifest), and how its code is loaded for each worker."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineup_protocol.bundle import MANIFEST_NAME, read_bundle
from lineup_protocol.errors import LineUpError
from lineup_protocol.limits import MANIFEST_BYTES_MAX
from lineup_protocol.manifest import parse_manifest
from lineup_protocol.strict_json import canonical_json, decode_json
from lineup_sdk.app import MiniApp
from lineup_sdk.worker import load_app
from lineup_supervisor.core.events import Bundle

CHAT_SCOPE = "chat"
OWN_PACKAGE = "lineup_workers"


@dataclass(frozen=True)
class StubBundle:
    """A validated bundle and its loader: entry (``module:attr``) → app, fresh at every call."""

    bundle: Bundle
    load: Callable[[str], MiniApp]

    @property
    def app_scope(self) -> str:
        return str(self.bundle.manifest["app_scope"])


def from_folder(path: str | os.PathLike[str]) -> StubBundle:
    """A bundle as it lies on disk, by the Runtime's own rules.

    Raises:
        LineUpError: ``manifest_invalid`` with every fault and its path.
    """
    folder = Path(path).resolve()
    kind = _declared(folder).get("kind")
    _, digest, files = read_bundle(folder, trusted=kind not in (None, "installed"))
    manifest = decode_json(files[MANIFEST_NAME], bytes_max=MANIFEST_BYTES_MAX)
    assert isinstance(manifest, dict)
    return StubBundle(
        Bundle(digest=digest, path=str(folder), manifest=manifest), lambda entry: load_fresh(entry, folder)
    )


def from_app(app: MiniApp, manifest: Mapping[str, Any]) -> StubBundle:
    """An app object with its manifest, for tests that write no folder. Its handlers keep what they keep in Python
    variables over a crash, which a real worker would not.

    Raises:
        LineUpError: ``manifest_invalid``.
    """
    data = dict(manifest)
    parse_manifest(data, trusted=data.get("kind") != "installed")
    digest = hashlib.sha256(canonical_json(data)).hexdigest()
    return StubBundle(Bundle(digest=digest, path="", manifest=data), lambda entry: app)


def find_chat(beside: Path | None) -> StubBundle:
    """Interact: a sibling of the tested bundle, else that of the installed distribution.

    Raises:
        FileNotFoundError: there is none.
    """
    places = [beside.parent] if beside is not None else []
    found = importlib.util.find_spec(OWN_PACKAGE)
    places += [Path(place) for place in (found.submodule_search_locations or ())] if found is not None else []
    for place in places:
        for manifest in sorted(place.glob(f"*/{MANIFEST_NAME}")):
            if _declared(manifest.parent).get("app_scope") == CHAT_SCOPE:
                return from_folder(manifest.parent)
    raise FileNotFoundError("no bundle of Interact (app_scope chat) beside the tested one or in the distribution")


def load_fresh(entry: str, folder: Path) -> MiniApp:
    """Import the entry as a new process would: no module of this folder, or of one that it would hide, is reused."""
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if origin and name.partition(".")[0] == _top_level(origin, folder):
            del sys.modules[name]
    module_name = entry.partition(":")[0]
    stranger = sys.modules.pop(module_name, None)
    path_before = list(sys.path)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return load_app(entry, str(folder))
    finally:
        sys.path[:] = path_before
        sys.modules.pop(module_name, None)
        if stranger is not None:
            sys.modules[module_name] = stranger


def _top_level(origin: str, folder: Path) -> str | None:
    """The top-level module name of a file, if it lies in the folder."""
    try:
        return Path(origin).resolve().relative_to(folder).parts[0].removesuffix(".py")
    except ValueError:
        return None


def _declared(folder: Path) -> dict[str, Any]:
    """The manifest as far as it can be read; its faults are told by whoever reads the bundle."""
    try:
        data = decode_json((folder / MANIFEST_NAME).read_bytes(), bytes_max=MANIFEST_BYTES_MAX)
    except (OSError, LineUpError):
        return {}
    return data if isinstance(data, dict) else {}
