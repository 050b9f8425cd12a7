"""torch is an oracle for the tests and needs no GPU: install its CPU build, 200 MB where CUDA's is several GB.

Runs before the dev extra is there, so on the standard library alone.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def pinned(pyproject: Path = Path("pyproject.toml")) -> str:
    """The version of torch that the dev extra pins."""
    match = re.search(r'"torch==([\d.]+)"', pyproject.read_text())
    if match is None:
        raise LookupError(f"{pyproject} pins no torch==VERSION")
    return match[1]


def installed_cuda() -> str | None:
    """The CUDA version that the installed torch was built for; None for a CPU build, or where there's no torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    # torch/version.py by itself: importing torch takes seconds
    return runpy.run_path(str(Path(spec.origin).with_name("version.py")))["cuda"]


def install() -> int:
    """Install the pinned torch's CPU build where pip would otherwise take CUDA's: on Linux."""
    if not sys.platform.startswith("linux") or importlib.util.find_spec("torch") is not None:
        return 0
    # only a CPU build has this version: without one at hand pip downloads nothing and says no
    wanted = f"torch=={pinned()}+cpu"
    if _pip(wanted) == 0:
        return 0
    print("this index has no CPU build of torch; asking PyTorch's own", file=sys.stderr, flush=True)
    return _pip("--extra-index-url", CPU_INDEX, wanted)


def check() -> int:
    """Refuse an environment with a CUDA build."""
    cuda = installed_cuda()
    if cuda is None:
        return 0
    fix = f"{sys.executable} -m pip uninstall -y torch"
    print(
        f"torch in this environment is built for CUDA {cuda}; the tests want its CPU build. Fix: {fix}", file=sys.stderr
    )
    return 1


def _pip(*arguments: str) -> int:
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    print("+ " + " ".join(command), file=sys.stderr, flush=True)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit({"install": install, "check": check}[sys.argv[1]]())
