from __future__ import annotations

from pathlib import Path

import pytest

from tools.checks.__main__ import ROOT, STEPS, WORKFLOWS, main, run_step


@pytest.mark.parametrize("step", ["workflow schema", "workflow audit"])
def test_the_workflows_pass(step: str) -> None:
    assert [Path(path).name for path in WORKFLOWS] == ["ci.yml", "docs.yml", "release.yml"]
    outcome = run_step(step, STEPS[step])
    assert outcome.code == 0, outcome.output


@pytest.mark.parametrize(
    ("step", "good", "bad"),
    [
        ("workflow schema", "runs-on: ubuntu-latest", "runs_on: ubuntu-latest"),
        ("workflow schema", "timeout-minutes: 15", "timeout-minutes: soon"),
        ("workflow audit", "permissions:\n  contents: read", "permissions: write-all"),
        ("workflow audit", "- run: tools/check", '- run: echo "${{ github.event.pull_request.title }}"'),
    ],
)
def test_a_broken_workflow_fails(tmp_path: Path, step: str, good: str, bad: str) -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert good in text
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    workflow = folder / "ci.yml"
    command = [part for part in STEPS[step] if part not in WORKFLOWS] + [str(workflow)]
    workflow.write_text(text)
    assert run_step(step, command).code == 0
    workflow.write_text(text.replace(good, bad))
    assert run_step(step, command).code != 0


def test_a_failing_step_shows_its_output_and_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STEPS, "good", ["true"])
    monkeypatch.setitem(STEPS, "bad", ["bash", "-c", "echo out; echo err >&2; exit 3"])
    monkeypatch.setitem(STEPS, "absent", ["/no/such/tool"])
    assert main(["good"]) == 0
    assert main(["good", "bad"]) == 1
    assert main(["absent"]) == 1
    assert main(["nonsense"]) == 2
    printed = capsys.readouterr().out
    assert "ok     good (" in printed
    assert "FAILED bad (" in printed
    assert "out\nerr\n" in printed
    assert "No such file or directory: '/no/such/tool'" in printed


def test_check_covers_the_shell_scripts(tmp_path: Path) -> None:
    script = tmp_path / "broken"
    script.write_text("if true; then\n")
    assert run_step("shell", STEPS["shell"]).code == 0
    assert run_step("shell", [*STEPS["shell"], str(script)]).code != 0
