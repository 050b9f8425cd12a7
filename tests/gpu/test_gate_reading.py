"""How the compile gate reads machine code, and what it then complains about: on listings written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.gate import amdgcn, sass
from minfer_kernels.gpu.gate.figures import Figures
from minfer_kernels.gpu.gate.flow import innermost_loops
from minfer_kernels.gpu.gate.pool import Compiled
from minfer_kernels.gpu.gate.record import Record, page
from minfer_kernels.gpu.gate.verdict import broken_promises, differences
from minfer_kernels.gpu.gate.verify import complaints
from minfer_kernels.gpu.targets import TARGETS

SM_90, GFX = TARGETS["sm_90"], TARGETS["gfx942"]

# an outer loop (.L_x_0) around an inner one (.L_x_1), whose wait (.L_x_3) stands behind the end, and the usual trap
LISTING = """\
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   MOV R2, RZ ;
.L_x_1:
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR6][R2.64] ;
        /*0030*/              @!P1 BRA `(.L_x_3) ;
.L_x_2:
        /*0040*/                   IDP.4A.S8.S8 R8, R4, R5, R8 ;
        /*0050*/                   IMAD.MOV.U32 R9, RZ, RZ, R8 ;
        /*0060*/               @P0 BRA `(.L_x_1) ;
        /*0070*/                   BRA.U !UP0, `(.L_x_0) ;
        /*0080*/                   EXIT ;
.L_x_3:
        /*0090*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P2, [R10], R11 ;
        /*00a0*/                   BRA `(.L_x_2) ;
.L_x_4:
        /*00b0*/                   BRA `(.L_x_4);
        /*00c0*/                   NOP;
"""


def figures(**changed: object) -> Figures:
    plain = Figures(
        registers=40,
        stack=0,
        spills=0,
        shared=1024,
        threads=128,
        instructions=100,
        loop=20,
        loads={128: 2, 32: 1},
        dp4a=8,
        tensor=1,
        integers=16,
        histogram={"IDP": 8},
        digest="a",
    )
    return replace(plain, **changed)  # pyright: ignore[reportArgumentType]


def configuration(promises: Promises) -> Configuration:
    return Configuration("some.kernel", None, {}, promises=promises)


PROMISES = Promises(dp4a=True, wide_loads=True, tensor_cores=True, integer_ops=2.0, weights_per_turn=1024)


def test_the_innermost_loop_takes_its_wait_behind_the_end_along_and_nothing_else() -> None:
    (loop,) = innermost_loops(sass.read_code(LISTING))
    assert sorted(i.opcode.split(".")[0] for i in loop) == sorted(["LDG", "BRA", "IDP", "IMAD", "BRA", "SYNCS", "BRA"])


def test_two_loops_beside_each_other_are_two() -> None:
    twice = "\n".join(
        f".L_x_{n}:\n        /*0010*/  {op} R1, R2 ;\n        /*0020*/   @P0 BRA `(.L_x_{n}) ;"
        for n, op in enumerate(("FADD", "IADD3"))
    )
    loops = innermost_loops(sass.read_code(twice + "\n        /*0030*/  EXIT ;\n"))
    assert sorted(loop[0].opcode for loop in loops) == ["FADD", "IADD3"]


def test_code_without_a_jump_back_has_no_loop() -> None:
    straight = ".L_x_0:\n        /*0010*/  FADD R1, R2 ;\n        /*0020*/  EXIT ;\n"
    assert innermost_loops(sass.read_code(straight)) == []


def test_a_listing_without_instructions_is_an_error() -> None:
    with pytest.raises(ValueError, match="no instructions"):
        sass.read_code("nvdisasm error   : oh no")


@pytest.mark.parametrize(
    ("opcode", "width"),
    [
        ("LDG.E.128.CONSTANT", 128),
        ("LDG.E.64", 64),
        ("LDG.E", 32),
        ("LDG.E.U16.CONSTANT", 16),
        ("LDG.E.U8", 8),
        ("LDGSTS.E.BYPASS.LTC128B.128", 128),
        ("LDGSTS.E.LTC128B.64", 64),
        ("LDS.128", None),
        ("STG.E.128", None),
    ],
)
def test_load_widths_are_those_of_the_thread(opcode: str, width: int | None) -> None:
    assert sass.load_width(opcode) == width


def test_integer_work_is_told_from_moves_floats_and_the_uniform_path() -> None:
    listing = (
        "IADD3 IMAD.WIDE.U32 IMAD.MOV.U32 LOP3.LUT UIADD3 FFMA MOV I2FP.F32.S32 PRMT IDP.4A.S8.S8 LDG.E SHF.R.S32.HI"
    )
    counted = [opcode for opcode in listing.split() if sass.is_integer(opcode)]
    assert counted == ["IADD3", "IMAD.WIDE.U32", "LOP3.LUT", "I2FP.F32.S32", "PRMT", "IDP.4A.S8.S8", "SHF.R.S32.HI"]


def test_amd_assembly_gives_loops_loads_and_spills() -> None:
    text = """\
kernel:
	s_load_dwordx4 s[0:3], s[4:5], 0x0
.LBB0_1:
	global_load_dwordx4 v[2:5], v[0:1], off
	v_dot4_i32_i8 v6, v2, v3, v6
	v_add_f32_e32 v7, v7, v8
	s_cbranch_scc1 .LBB0_1
; %bb.2:
	s_endpgm
	.section	.rodata,"a",@progbits
  .vgpr_count:     84
  .private_segment_fixed_size: 16
  .vgpr_spill_count: 3
  .sgpr_spill_count: 1
"""
    (loop,) = innermost_loops(amdgcn.read_code(text))
    assert [amdgcn.load_width(i.opcode) for i in loop] == [128, None, None, None]
    assert [i.opcode for i in loop if amdgcn.is_integer(i.opcode)] == ["v_dot4_i32_i8"]
    assert amdgcn.read_usage(text) == (84, 16, 3), "scalars spill to lanes of a vector register"


def test_kept_promises_are_no_complaint() -> None:
    assert broken_promises(configuration(PROMISES), figures(), SM_90) == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"stack": 8}, "8 bytes of stack"),
        ({"spills": 2}, "2 loads and stores of registers"),
        ({"shared": 300_000}, "300000 bytes of shared memory, where sm_90 has 232448"),
        ({"dp4a": 0}, "no IDP.4A in the loop"),
        ({"dp4a": 0, "loop": 0}, "no IDP.4A in the code"),
        ({"loads": {64: 4}}, "no 128-bit load in the loop, which has 4x64"),
        ({"tensor": 0}, "no matrix instruction"),
        ({"integers": 17}, "2.12 integer instructions per weight, over 2"),
    ],
)
def test_every_promise_can_be_broken(changed: dict[str, object], complaint: str) -> None:
    (found,) = broken_promises(configuration(PROMISES), figures(**changed), SM_90)
    assert complaint in found


def test_elsewhere_only_spills_and_room_count() -> None:
    bare = figures(dp4a=0, tensor=0, loads={}, integers=1000)
    assert broken_promises(configuration(PROMISES), bare, GFX) == []
    assert broken_promises(configuration(PROMISES), replace(bare, spills=1, shared=65537), GFX) != []


def test_what_differs_from_the_record_is_said_with_both_values() -> None:
    assert differences(figures(), figures()) == []
    assert differences(figures(registers=168), figures()) == ["registers: 168, recorded 40"]
    changed = differences(figures(histogram={"IDP": 7, "FADD": 1}, digest="b"), figures())
    assert changed == ["instructions: FADD 1 (recorded 0), IDP 7 (recorded 8)"]
    assert differences(figures(digest="b"), figures()) == ["instructions: the same kinds, with other modifiers"]


def test_a_record_is_read_back_and_compared_only_under_its_own_compiler() -> None:
    one = configuration(Promises())
    compiled = Compiled(one.name, "sm_90", figures())
    record = Record("3.9.0").updated([compiled], [one.name])
    assert Record.from_text(record.to_text()) == Record("3.9.0", _filled(record))
    changed = replace(compiled, figures=figures(registers=41))
    assert complaints(compiled, one, record, "3.9.0") == []
    assert complaints(changed, one, record, "3.9.0") == ["registers: 41, recorded 40"]
    assert complaints(changed, one, record, "3.10.0") == []
    assert complaints(compiled, one, Record("3.9.0"), "3.9.0") == ["not recorded yet"]
    shown = page(record, {"sm_90": {one.name: one}}, [])
    assert "| some.kernel | 40 | 1024 | 128 | 100 | 20 | 2x128 1x32 | 8 | 1 | 16 |  |" in shown


def _filled(record: Record) -> dict[str, dict[str, Figures]]:
    return {target: dict(by_name) for target, by_name in record.figures.items() if by_name}


def test_a_configuration_that_is_gone_leaves_the_record() -> None:
    compiled = [Compiled(name, "sm_90", figures()) for name in ("a", "b")]
    record = Record("3.9.0").updated(compiled, ["a", "b"])
    assert list(record.updated([], ["b"]).figures["sm_90"]) == ["b"]
