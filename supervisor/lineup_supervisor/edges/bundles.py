"""Bundles for the core: the distribution's own at boot, a person's folder for ``apps.add``; each as an immutable copy.

Reads files, runs no app code: the distribution's bundles are found without importing their package.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from lineup_protocol.bundle import MANIFEST_NAME, read_bundle, store_bundle
from lineup_supervisor.core.events import Bundle

OWN_PACKAGE = "lineup_workers"


def own_bundles(apps: Path) -> tuple[Bundle, ...]:
    """Those of the Runtime's own distribution, in order of their folders.

    Raises:
        LineUpError: ``manifest_invalid`` (the installation is broken) or ``storage_full``.
    """
    found = importlib.util.find_spec(OWN_PACKAGE)
    folders = [] if found is None else [Path(place) for place in found.submodule_search_locations or ()]
    manifests = sorted(path for folder in folders for path in folder.glob(f"*/{MANIFEST_NAME}"))
    return tuple(keep_bundle(path.parent, apps, trusted=True) for path in manifests)


def keep_bundle(folder: Path, apps: Path, *, trusted: bool = False) -> Bundle:
    """Check the folder and keep its copy under ``apps/<digest>``. Raises LineUpError as ``read_bundle``."""
    manifest, digest, files = read_bundle(folder, trusted=trusted)
    path = store_bundle(files, digest, apps)
    return Bundle(digest=digest, path=str(path), manifest=manifest.as_dict())
