"""K-quants and IQ4_NL have the bytes of ggml's own encoders."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest
from reference_rows import ROWS

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_ir.formats.search import column_sums

# First 16 digits of the SHA-256 of what ggml_quantize_chunk makes of these rows (llama-cpp-python 0.3.36, x86-64, no
# importance matrix). Its libggml-base is built without fused multiply-adds.
GGML_BYTES = {
    "Q2_K": {
        "bell": "8446981aa73605f3",
        "weights": "0c5f67d7960b5d9b",
        "heavy": "c8b5e4f9c071b898",
        "sparse": "c11f1a0bf3248468",
        "positive": "3e44cb841e239a1f",
        "negative": "e1f42f5a89198224",
        "ties": "3b591b857cc983dc",
        "equal": "cae87e6b85bbfd5b",
        "zeros": "148e380f436971a0",
        "drift": "4b55917b59cf6661",
        "small": "19d641a7c308c1a5",
        "tiny": "cfeb38b0635141cc",
        "spread": "cfb365bda4293113",
        "stubborn": "9cef43433a8fd523",
        "large": "5a5a54e42cc5f0a1",
    },
    "Q3_K": {
        "bell": "670844bc91f4f201",
        "weights": "c62b9424423035bb",
        "heavy": "7b71e6d235f62dac",
        "sparse": "e7c540f8c259d59d",
        "positive": "81e5d2245533d805",
        "negative": "a49746fc7b11af27",
        "ties": "2fc639efe13ec6ac",
        "equal": "fa14970be8a30268",
        "zeros": "edec92a0dca67e1c",
        "drift": "caf33d2c052ce5ee",
        "small": "095adfa49f1f7351",
        "tiny": "877635f9868a1d1b",
        "spread": "f1d431bce75a9dda",
        "stubborn": "778e593ea4249d5e",
        "large": "759615e40b69406a",
    },
    "Q4_K": {
        "bell": "4b15f65e0f847b89",
        "weights": "3ffec24c757a5d98",
        "heavy": "8baae7c1d2b3502c",
        "sparse": "87114886b0448d32",
        "positive": "e209a30015dcc531",
        "negative": "6b9ea0c8a3fc3a39",
        "ties": "3682f1f688d8f34b",
        "equal": "1005b8e77a816464",
        "zeros": "9ed416b3a1624eaa",
        "drift": "8314fdf506cf7a3b",
        "small": "882d0cf75679b55d",
        "tiny": "589f99236bc1822c",
        "spread": "a78e93d758bc8fe7",
        "stubborn": "973f9b9b0c1cd4ba",
        "large": "9ab0d1aa1b90a3dd",
    },
    "Q5_K": {
        "bell": "dc6793603a4259fe",
        "weights": "54c72d39579bb386",
        "heavy": "28064cca451b9241",
        "sparse": "b7d8e6f2a34a325e",
        "positive": "d9a99d852a4efdfe",
        "negative": "81c48eef3e5ec5b2",
        "ties": "14df67090e1f642d",
        "equal": "14981b0b0aedf0fc",
        "zeros": "2742d2702ba3ca60",
        "drift": "c83859822ac21582",
        "small": "669e6e762819ac81",
        "tiny": "8867aa4f0b8084f1",
        "spread": "7eedd83ae0f4ab50",
        "stubborn": "12ff55b722ef12d8",
        "large": "a654628ba08b8df3",
    },
    "Q6_K": {
        "bell": "e6f616a9d18025dc",
        "weights": "e2564c9133b2cffb",
        "heavy": "b926952cb766742d",
        "sparse": "f2036e7cf7f05511",
        "positive": "1701c570d62ab003",
        "negative": "043e2c3709747074",
        "ties": "5bdb381fcfdc46ff",
        "equal": "6e6149a7724857c3",
        "zeros": "84caea2cad98e8ed",
        "drift": "01f0354967f45639",
        "small": "61535901d2f14103",
        "tiny": "f741411435be0b00",
        "spread": "9df29a086bfe4df8",
        "stubborn": "171ada5f89f47f9b",
        "large": "1182c786e0f37f05",
    },
    "IQ4_NL": {
        "bell": "29083e6b66eb1916",
        "weights": "0b1b9284cfe51881",
        "heavy": "12119322f3baace0",
        "sparse": "cc27ddd5e3684530",
        "positive": "81fc65692ef572bc",
        "negative": "1c2f0210aa8757e6",
        "ties": "e2fd54f7d7a7976a",
        "equal": "113e20d9d906c685",
        "zeros": "15730e67a017efa3",
        "drift": "a7838ceaa1f637da",
        "small": "01e751904210b9ec",
        "tiny": "276816593cbed5ee",
        "spread": "1b33f6cff99b2a5e",
        "stubborn": "d2bc874c239cb7e0",
        "large": "fc56a413f99bbbb1",
    },
}


@pytest.mark.parametrize("name", GGML_BYTES)
@pytest.mark.parametrize("kind", ROWS)
def test_bytes_are_those_of_ggml(name: str, kind: str) -> None:
    data = WEIGHT_FORMATS[name].encode(ROWS[kind]())
    assert sha256(data.tobytes()).hexdigest()[:16] == GGML_BYTES[name][kind]


@pytest.mark.parametrize("name", GGML_BYTES)
def test_a_block_has_the_same_bytes_whatever_stands_beside_it(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    rows = np.concatenate([make() for make in ROWS.values()])
    together = fmt.encode(rows).reshape(-1, fmt.block_bytes)
    blocks = rows.reshape(-1, fmt.block_size)
    for i in range(0, len(blocks), 37):
        assert np.array_equal(fmt.encode(blocks[i]), together[i])


@pytest.mark.parametrize("name", GGML_BYTES)
def test_values_too_large_for_products_in_float32_are_searched_as_small_ones(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    x = ROWS["bell"]()
    small, large = (fmt.decode(fmt.encode(x * np.float32(2.0**power))) for power in (10, 17))
    assert np.array_equal(large, small * np.float32(2**7))
    for power in (40, 100):
        with pytest.raises(ValueError, match=f"{name} cannot hold .* float16 scale overflows"):
            fmt.encode(x * np.float32(2.0**power))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 31, 257])
def test_sums_of_columns_go_from_the_first_element_to_the_last(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((32, n)).astype(np.float32)
    total = x[0].copy()
    for row in x[1:]:
        total = total + row
    assert np.array_equal(column_sums(x), total)
