"""`minfer dump`: every stage, as text, JSON and DOT."""

from __future__ import annotations

import json
import re
import resource
import subprocess
from pathlib import Path

import jsonschema
import pytest
from cli_calls import error_line, minfer

from minfer_ir.params import DevicePlan
from minfer_ir.passes.pipeline import default_pipeline
from minfer_ir.serialize import loads
from minfer_kernels.cpu.compiler.features import HostFeatures
from minfer_models import load
from minfer_models.cli.options import STAGES
from minfer_models.text_files import write_text

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs/graph.schema.json").read_text())
NODE = re.compile(r"%(\d+) \S+ = (\w+)\(")


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_s_json_loads_back_and_fits_the_schema(tiny: Path, stage: str) -> None:
    text = minfer("dump", tiny, "--stage", stage, "--n-tokens", 3, "--format", "json").out
    document = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    with load(tiny, threads=1) as llm:
        assert loads(text) == llm.graph(3, stage)
    assert document["stage"] == stage
    assert ("plan" in document) == (stage in STAGES[STAGES.index("split") :])


@pytest.mark.parametrize("stage", [s for s in STAGES if s != "lower"])
def test_text_shows_every_node_once_and_in_order(tiny: Path, stage: str) -> None:
    with load(tiny, threads=1) as llm:
        graph = llm.graph(1, stage)
    shown = [
        (int(m[1]), m[2])
        for line in minfer("dump", tiny, "--stage", stage).out.splitlines()
        if (m := NODE.search(line))
    ]
    assert shown == [(n.id, n.op) for n in graph]


def test_the_allocated_stage_says_where_every_value_lies_how_long_and_whose_bytes(tiny: Path) -> None:
    text = minfer("dump", tiny, "--stage", "allocate").out
    plan = json.loads(minfer("dump", tiny, "--stage", "allocate", "--format", "json").out)["plan"]["memory"]
    lines = {int(m[1]): line for line in text.splitlines() if (m := NODE.search(line))}
    assert {"input", "value", "view", "inplace", "kv"} == {v["kind"] for v in plan["values"]}
    for value in plan["values"]:
        note = lines[value["node"]].split(" | ")[1]
        place = value["region"] or f"b{value['buffer']}"
        assert note.startswith(f"{place}+{value['offset']:#x} {value['bytes']} bytes, ")
        assert (f"class {value['class_bytes']}," in note) == (value["buffer"] is not None)
        assert f"life {'start' if value['first'] < 0 else '%' + str(value['first'])} to " in note
        assert (f"{value['kind']} of %{value['alias']} " in note) == (value["alias"] is not None)
        if value["buffer"] is not None:
            buffer = plan["buffers"]["cpu"][value["buffer"]]
            assert value["offset"] + value["bytes"] <= buffer["largest"] <= buffer["class_bytes"]
    with load(tiny, threads=1) as llm:
        state = llm.engine.stage(llm.engine.params(1), "allocate")
    assert state.memory is not None
    assert {v["node"]: v["alias"] for v in plan["values"] if v["kind"] == "inplace"} == dict(state.memory.inplace)
    for value in plan["values"]:
        owner = state.graph.owner(value["node"])
        assert value["kind"] == "inplace" or value["alias"] == (None if owner == value["node"] else owner)
    totals = plan["totals"]["cpu"]
    assert totals["pool"] == sum(b["class_bytes"] for b in plan["buffers"]["cpu"]) >= totals["live"]
    assert f"{totals['pool'] / 2**20:.3f} MiB in {len(plan['buffers']['cpu'])} buffers" in text


def test_the_stages_are_the_pipeline_s_and_in_the_help(tiny: Path) -> None:
    with load(tiny, threads=1) as llm:
        engine = llm.engine
        assert tuple(p.name for p in default_pipeline(engine.model.graph, engine.resources)) == STAGES
    assert ", ".join(STAGES) in " ".join(minfer("dump", "--help").out.split())


def test_the_liveness_stage_says_from_when_to_when(tiny: Path) -> None:
    """What nobody reads lives as long as it's written; inputs and cells outlast the step."""
    lines = minfer("dump", tiny, "--stage", "liveness").out.splitlines()
    assert "%-" not in "".join(lines)
    pinned = {"input", "kv"}
    owned = [(NODE.search(line), line) for line in lines if ", its bytes live " in line]
    assert {found[2] for found, _ in owned if found} > pinned
    for found, line in owned:
        assert found is not None
        life = line.rsplit(", its bytes live ", 1)[1]
        if found[2] in pinned:
            assert life == "from start to end"
        else:
            end = re.fullmatch(r"to (?:%(\d+)|end)", life)
            assert end is not None and (end[1] is None or int(end[1]) >= int(found[1]))


def test_two_backends_give_splits_that_read_each_other(tiny: Path) -> None:
    """Through the same view as the command, which plans for one backend."""
    from minfer_models.cli.stages import StageView

    plan = DevicePlan(("cpu", "numpy"), ((1, "numpy"),))
    with load(tiny, threads=1, devices=plan) as llm:
        params = llm.engine.params(1)
        text = {s: StageView(llm.engine.stage(params, s), s).text() for s in ("split", "liveness", "allocate", "lower")}
    assert re.search(r"^split 1 on numpy: \d+ nodes, reads %\d+ ", text["split"], re.MULTILINE)
    assert re.search(r"numpy: read at %\d+", text["liveness"])
    assert re.search(r"; numpy: b\d+\+0x0 \d+ bytes, .* staged", text["allocate"])
    assert "totals on numpy" in text["allocate"]
    assert re.search(r"^  copy %\d+ \S+ from cpu to numpy$", text["lower"], re.MULTILINE)
    assert re.search(r"^%\d+ blk\.1\.ffn_residual@b\d+\+0x0 = matmul_add\(x=%", text["lower"], re.MULTILINE)


def test_the_tape_names_each_operand_by_the_node_that_reads_it_and_its_place(tiny: Path) -> None:
    """Several values lie at one address at different times; each instruction names its own."""
    text = minfer("dump", tiny, "--stage", "lower").out
    plan = json.loads(minfer("dump", tiny, "--stage", "lower", "--format", "json").out)
    nodes = {n["name"]: n for n in plan["nodes"]}
    names = [n["name"] for n in plan["nodes"]]
    places = {names[v["node"]]: v for v in plan["plan"]["memory"]["values"]}
    instructions = [line for line in text.splitlines() if re.match(r" *\d+  \w+\.", line)]
    listed = plan["plan"]["programs"][0]["listing"]
    assert instructions == listed[: len(instructions)]
    assert sum(len(re.findall(r"@[bkv][\d.]+\+0x", line)) for line in instructions) >= 2 * len(instructions)
    for line in instructions:
        label = line.rsplit("; ", 1)[1]
        sources = {names[s] for s in nodes[label]["sources"]}
        for name, skip, buffer, offset in re.findall(r"=(\S+?)(\[\d+:\])?@([bkv][\d.]+)\+(0x[0-9a-f]+)", line):
            assert name in sources | {label}
            place = places[name]
            extra = 4 * int(skip[1:-2]) if skip else 0
            assert buffer == (place["region"] or f"b{place['buffer']}")
            assert int(offset, 16) == place["offset"] + extra
        for name in re.findall(r"=(\S+?)@w\d+", line):
            assert name in sources
        assert not re.search(r"0x[0-9a-f]{9}", line)
    computed = [
        n for n in plan["nodes"] if n["view"] is None and n["op"] not in ("input", "weight", "weight_concat", "kv")
    ]
    assert [line.rsplit("; ", 1)[1] for line in instructions] == [n["name"] for n in computed]
    addresses = {(p["buffer"], p["offset"]) for p in places.values() if p["buffer"] is not None}
    assert len(addresses) < len(computed)


def test_the_lowered_stage_shows_the_layout_of_every_packed_weight(tiny: Path) -> None:
    text = minfer("dump", tiny, "--stage", "lower").out
    rows = HostFeatures.detect().best_isa().lanes
    fields = f"q4: 32 u4 at 0 by 4, d: 1 f16 at {16 * rows} by 2"
    assert f"layout Q4_0x{rows} [{rows} rows x 32, {18 * rows} bytes: {fields}]" in text
    assert re.search(
        rf"^w\d+ blk\.1\.ffn_down\.weight Q4_0\[256, 512\]: packed as Q4_0x{rows}, 73728 bytes$", text, re.MULTILINE
    )
    assert re.search(r"^w\d+ blk\.1\.attn_norm\.weight F32\[256\]: float32 values, 1024 bytes$", text, re.MULTILINE)


@pytest.mark.parametrize("stage", ["dce", "allocate", "lower"])
def test_a_block_alone(tiny: Path, stage: str) -> None:
    shown = minfer("dump", tiny, "--stage", stage, "--block", 1).out
    assert "blk.1.ffn_down" in shown
    assert "= get_rows(" not in shown and "  get_rows." not in shown
    assert not re.search(r"(%\d+ |; )blk\.0\.attn_q\b.* = ", shown)


def test_dot_renders(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "block.dot"
    assert minfer("dump", tiny, "--format", "dot", "--block", 0, "-o", out).code == 0
    done = subprocess.run(["dot", "-Tsvg", out], capture_output=True, check=True, timeout=60)
    assert b"attention" in done.stdout


def test_dot_shows_splits_and_places_once_they_are_known(tiny: Path) -> None:
    """Under a title with the model and the stage."""
    pictures = {s: minfer("dump", tiny, "--stage", s, "--format", "dot").out for s in ("dce", "split", "allocate")}
    assert "  label=<tiny-Q4_0.gguf, stage split: rows 1, output_rows 1, " in pictures["split"]
    assert "split 0" not in pictures["dce"] and "+0x0" not in pictures["dce"]
    plan = json.loads(minfer("dump", tiny, "--stage", "allocate", "--format", "json").out)
    nodes = {n["id"]: n for n in plan["nodes"]}
    for split in plan["plan"]["splits"]:
        for node in split["nodes"]:
            assert re.search(rf"^ *n{node} .*<br/>split {split['index']}>\];$", pictures["split"], re.MULTILINE)
    for value in plan["plan"]["memory"]["values"]:
        place = re.escape(f"{value['region'] or 'b' + str(value['buffer'])}+{value['offset']:#x}")
        assert re.search(rf"^ *n{value['node']}[_ ].*<br/>{place}>\];$", pictures["allocate"], re.MULTILINE) or (
            nodes[value["node"]]["op"] == "input" and not any(value["node"] in n["sources"] for n in plan["nodes"])
        ), value


def test_a_fusion_that_is_off_is_not_in_the_plan(tiny: Path) -> None:
    assert "swiglu_quantize(" in minfer("dump", tiny).out
    without = minfer("dump", tiny, "--fusions-off", "swiglu_quantize, swiglu").out
    assert "swiglu" not in without.split("\n", 1)[1]
    assert "silu(" in without


def test_the_numpy_backend_quantizes_nothing(tiny: Path) -> None:
    shown = minfer("dump", tiny, "--device", "numpy").out
    assert "Q8A32" not in shown and "@numpy" in shown and "@cpu" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--stage", "alocate"],
            f"no stage is called 'alocate'; did you mean allocate? Stages, in order: {', '.join(STAGES)}",
        ),
        (["--stage", "bogus"], "no stage is called 'bogus'. Stages, in order: build, "),
        (["--block", "2"], "there is no block 2; the model has 0 to 1"),
        (["--format", "json", "--block", "0"], "a JSON document holds the whole graph"),
        (["--format", "svg"], "'svg'"),
    ],
)
def test_a_wrong_request_exits_with_2(tiny: Path, arguments: list[str], message: str) -> None:
    outcome = minfer("dump", tiny, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_what_can_t_be_planned_is_one_line(tiny: Path) -> None:
    assert "--device cpo: no device is called that; there are auto, cpu, numpy" in error_line(
        minfer("dump", tiny, "--device", "cpo")
    )
    assert "a forward has 1 to 256 rows, got 257" in error_line(minfer("dump", tiny, "--n-tokens", 257))


def test_a_file_is_written_whole_or_not_at_all(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "graph.json"
    out.write_text("before")
    assert "no fusion is called nope" in error_line(minfer("dump", tiny, "--fusions-off", "nope", "-o", out))
    assert out.read_text() == "before"
    assert minfer("dump", tiny, "--format", "json", "-o", out).out == ""
    assert len(loads(out.read_text())) > 10
    assert [p.name for p in tmp_path.iterdir()] == ["graph.json"]
    missing = tmp_path / "no" / "graph.json"
    assert error_line(minfer("dump", "no-such-model", "-o", missing)) == (
        f"minfer: -o {missing}: there is no folder {missing.parent}"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["graph.json"]
    assert "is a folder; name a file" in error_line(minfer("dump", tiny, "-o", tmp_path))


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "graph.json"
    out.write_text("before")

    def full(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device", str(out))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(out, "after")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("graph.json", "before")]


def test_a_disk_that_is_full_is_told_with_the_file(tmp_path: Path) -> None:
    """A limit on the size of files stands for it."""
    out = tmp_path / "graph.json"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as failed:
            write_text(out, "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.value.filename == str(out)
    with pytest.raises(OSError, match="No space left") as failed:
        write_text(Path("/dev/full"), "x")
    assert failed.value.filename == "/dev/full"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_replaced_keeps_its_permissions_and_links(tmp_path: Path) -> None:
    private, link, loose = tmp_path / "private", tmp_path / "link", tmp_path / "loose"
    private.touch(mode=0o600)
    link.symlink_to(private.name)
    loose.symlink_to("new")
    write_text(link, "secret")
    write_text(loose, "found")
    assert (link.readlink(), private.read_text(), private.stat().st_mode & 0o777) == (Path("private"), "secret", 0o600)
    assert (loose.is_symlink(), (tmp_path / "new").read_text()) == (True, "found")


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 255), "")
    assert [len(path.name) for path in tmp_path.iterdir()] == [255]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    write_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode
