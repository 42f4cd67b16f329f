"""Bundles for the core: the distribution's own at boot, a person's folder for ``apps.add``; each as an immutable copy.

Reads files, runs no app code: the distribution's bundles are found without importing their package. What the check of
one of them said is kept beside its copy, under the sum of the code that checked it, because loading that code is a good
part of a start. Copies that nothing refers to any more go at the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import lineup_protocol
from lineup_protocol import limits
from lineup_protocol.bundle import MANIFEST_NAME, bundle_digest, read_bundle, read_folder, remove_tree, store_bundle
from lineup_protocol.errors import LineUpError
from lineup_protocol.strict_json import canonical_json, decode_json
from lineup_supervisor.core.events import Bundle
from lineup_supervisor.edges.file_faults import file_fault
from lineup_supervisor.home import write_private

OWN_PACKAGE = "lineup_workers"
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CHECKED = ".checked-"  # dot in front: no bundle, and no part of a backup
_CHECKED_BYTES_MAX = 2 * limits.MANIFEST_BYTES_MAX


def own_bundles(apps: Path) -> tuple[Bundle, ...]:
    """Those of the Runtime's own distribution, in order of their folders.

    Raises:
        LineUpError: ``manifest_invalid`` (the installation is broken), ``storage_full`` or ``home_unusable``.
    """
    found = importlib.util.find_spec(OWN_PACKAGE)
    folders = [] if found is None else [Path(place) for place in found.submodule_search_locations or ()]
    manifests = sorted(path for folder in folders for path in folder.glob(f"*/{MANIFEST_NAME}"))
    return tuple(_own_bundle(path.parent, apps) for path in manifests)


def keep_bundle(folder: Path, apps: Path, *, trusted: bool = False) -> Bundle:
    """Check the folder and keep its copy under ``apps/<digest>``.

    Raises:
        LineUpError: as ``read_bundle``; ``storage_full`` or ``home_unusable`` if the copy cannot be written.
    """
    manifest, digest, files = read_bundle(folder, trusted=trusted)
    return Bundle(digest=digest, path=_keep(files, digest, apps), manifest=manifest.as_dict())


def drop_unused(apps: Path, used: Collection[str]) -> int:
    """Remove every copy whose digest is not in ``used``, and what a crash left half made; how many copies went.

    Only before the first bundle of this run is added. What is not named as our copies are stays.
    """
    dropped = 0
    for path in sorted(apps.iterdir()) if apps.is_dir() else ():
        name = path.name
        if _DIGEST.fullmatch(name) and name not in used:
            remove_tree(path)
            dropped += not path.exists()
        elif name.startswith((".new-", ".old-")):
            remove_tree(path)
        elif name.startswith(_CHECKED) and name.removeprefix(_CHECKED) not in used:
            with contextlib.suppress(OSError):
                path.unlink()
    return dropped


def _own_bundle(folder: Path, apps: Path) -> Bundle:
    """As ``keep_bundle``, without the check if this very code has passed these very files before."""
    files = read_folder(folder, allow_hard_links=True)
    digest = bundle_digest(files)
    checked = apps / f"{_CHECKED}{digest}"
    manifest = _passed_before(checked)
    if manifest is not None:
        return Bundle(digest=digest, path=_keep(files, digest, apps), manifest=manifest)
    bundle = keep_bundle(folder, apps, trusted=True)
    with contextlib.suppress(OSError):  # a full disk: then it is checked again the next time
        write_private(checked, canonical_json({"by": _code_sum(), "manifest": bundle.manifest}))
    return bundle


def _keep(files: dict[str, bytes], digest: str, apps: Path) -> str:
    try:
        return str(store_bundle(files, digest, apps))
    except OSError as error:
        raise file_fault(error, apps) from error


def _passed_before(checked: Path) -> dict[str, Any] | None:
    try:
        if checked.is_symlink() or checked.stat().st_size > _CHECKED_BYTES_MAX:
            return None
        kept = decode_json(checked.read_bytes(), bytes_max=_CHECKED_BYTES_MAX)
    except (OSError, LineUpError):
        return None
    if not isinstance(kept, dict) or kept.get("by") != _code_sum():
        return None
    manifest = kept.get("manifest")
    return manifest if isinstance(manifest, dict) else None


def _code_sum() -> str:
    """Of everything that a manifest's check may depend on."""
    digest = hashlib.sha256()
    for path in _protocol_sources():
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _protocol_sources() -> Iterator[Path]:
    for place in lineup_protocol.__path__:
        yield from sorted(Path(place).glob("*.py"))
