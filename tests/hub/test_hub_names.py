from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minfer_models.hub.names import HubName, choose, model_files, parse_hub_name, quant_tag


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("acme/tiny", HubName("acme/tiny", None)),
        ("acme/tiny:Q4_K_M", HubName("acme/tiny", "Q4_K_M")),
        ("a-b.c/T_1.5-GGUF:dir/x-Q8_0.gguf", HubName("a-b.c/T_1.5-GGUF", "dir/x-Q8_0.gguf")),
        ("tiny", None),
        ("tiny.gguf", None),
        ("models/tiny.gguf", None),
        ("models/tiny.GGUF", None),
        ("./acme/tiny", None),
        ("../acme", None),
        ("/acme/tiny", None),
        ("~/tiny", None),
        ("a/b/c", None),
        ("acme/tiny:", None),
        ("C:\\models\\tiny", None),
    ],
)
def test_hub_names_and_paths(text: str, expected: HubName | None) -> None:
    assert parse_hub_name(text) == expected


# names as published on the Hub by several uploaders
@pytest.mark.parametrize(
    ("file", "tag"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-0.5b-instruct-q5_k_m.gguf", "Q5_K_M"),
        ("qwen2.5-0.5b-instruct-fp16.gguf", "FP16"),
        ("Llama-3.2-1B-Instruct-f16.gguf", "F16"),
        ("Qwen3-0.6B-BF16.gguf", "BF16"),
        ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("DeepSeek-R1-Distill-Qwen-7B-IQ4_NL.gguf", "IQ4_NL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("Q8_0/Qwen3-235B-Q8_0-00002-of-00009.gguf", "Q8_0"),
        ("Q4_0.gguf", "Q4_0"),
        ("model.gguf", "model"),
    ],
)
def test_quant_tags(file: str, tag: str) -> None:
    assert quant_tag(file) == tag


def test_projectors_and_importance_matrices_are_no_models() -> None:
    files = ["a-Q8_0.gguf", "mmproj-a-F16.gguf", "imatrix_a.gguf", "README.md", "a.safetensors"]
    assert model_files(files) == {"a-Q8_0": ["a-Q8_0.gguf"]}


@given(
    shards=st.dictionaries(st.sampled_from(["Q4_0", "Q4_K_M", "Q8_0", "F16"]), st.integers(1, 12), min_size=1),
    data=st.data(),
)
def test_a_tag_in_any_case_finds_all_its_shards_in_order(shards: dict[str, int], data: st.DataObject) -> None:
    def names(tag: str) -> list[str]:
        count = shards[tag]
        if count == 1:
            return [f"m-{tag}.gguf"]
        return [f"m-{tag}-{index:05d}-of-{count:05d}.gguf" for index in range(1, count + 1)]

    files = data.draw(st.permutations([name for tag in shards for name in names(tag)]))
    tag = data.draw(st.sampled_from(sorted(shards)))
    spelled = data.draw(st.sampled_from([tag, tag.lower(), tag.title()]))
    assert choose(HubName("a/m", spelled), files) == names(tag)
