"""What products tell about their weights: the bytes that their threads share out, all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minfer_kernels.cpu.backend import CpuProgram
from minfer_kernels.cpu.runner.tape import NOTHING
from minfer_models import load
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model


@pytest.mark.parametrize("fusions_off", [(), ("matmul_add", "matmul_rope", "matmul_kv_store", "matmul_swiglu")])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_products_share_out_their_weights_to_the_last_byte(
    architecture: str, fusions_off: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    write_model(path, SyntheticModel(architecture, weights="Q4_0", vocabulary=byte_vocabulary(), n_ctx_train=64))
    with load(path, threads=2, fusions_off=fusions_off) as llm:
        (program,) = llm.engine.executable(llm.engine.params(1)).programs
        assert isinstance(program, CpuProgram)
        packed = {weight.address: weight.buffer.nbytes for weight in program.packed_weights().values()}
        reads = {
            index: address
            for index, instruction in enumerate(program.tape.instructions)
            if (address := instruction.operands.get("w", instruction.operands.get("gate"))) in packed
        }
        # At least q|k|v, out, gate|up and down of two blocks, and the head.
        assert len(reads) >= 4 * 2 + 1
        for index, instruction in enumerate(program.tape.instructions):
            if index in reads:
                address, items, item_bytes = instruction.weights
                assert address == reads[index]
                assert items * item_bytes == packed[address]
            else:
                assert instruction.weights is NOTHING
