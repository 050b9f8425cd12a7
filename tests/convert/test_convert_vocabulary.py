"""A converted vocabulary gives the ids, roles and prompts that Hugging Face's libraries give from the folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hf_folders import CHATML, byte_tokenizer, edit_json, write_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, processors

from minfer_models.chat import ChatTemplate
from minfer_models.convert.errors import ConvertError
from minfer_models.convert.folder import HFFolder
from minfer_models.convert.json_files import read_optional
from minfer_models.convert.pretokenizer import long_probe, name_of, short_probe
from minfer_models.convert.vocabulary import vocabulary_entries
from minfer_models.tokenizer import Tokenizer
from minfer_models.tokenizer.pretokenizers import PRE_TOKENIZERS

sys.path.append(str(Path(__file__).resolve().parents[1] / "text"))
from random_texts import random_texts

REAL = {
    "qwen3_tokenizer": (151936, "qwen2", [151645, 151643]),
    "llama3_1_tokenizer": (128256, "llama-bpe", [128001, 128008, 128009]),
    "mistral_tokenizer": (32000, "default", 2),
}
"""Rows of the embedding table, the name of the pre-tokenizer, generation_config.json's eos_token_id."""
CHAT = [
    {"role": "system", "content": "You count."},
    {"role": "user", "content": " 1 + 1?\n"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "<|im_end|> and <|eot_id|>?"},
]


def folder_of(path: Path, generation: Mapping[str, Any] = {}, config: Mapping[str, Any] = {}) -> HFFolder:
    return HFFolder(path, config, generation, read_optional(path / "tokenizer_config.json"), {})


class Real:
    def __init__(self, name: str, path: Path) -> None:
        self.n_vocab, self.pre, ends = REAL[name]
        self.name, self.path = name, path
        self.notices: list[str] = []
        folder = folder_of(path, {"eos_token_id": ends})
        self.entries = vocabulary_entries(folder, self.n_vocab, None, self.notices.append)
        self.ends = set(ends) if isinstance(ends, list) else {ends}
        self.tokenizer = Tokenizer.from_metadata(self.entries)
        self.file = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest) -> Real:
    return Real(request.param, request.getfixturevalue(request.param))


def test_ids_of_real_vocabularies(real: Real) -> None:
    assert (real.entries["tokenizer.ggml.pre"], real.notices) == (real.pre, [])
    assert len(real.entries["tokenizer.ggml.tokens"]) == real.n_vocab
    for text in (*random_texts(150, seed=7), short_probe()):
        assert real.tokenizer.encode(text) == real.file.encode(text, add_special_tokens=False).ids, text
        assert real.tokenizer.encode(text, add_bos=None, add_eos=None) == real.file.encode(text).ids, text


def test_sentencepiece_as_recent_files_spell_it(mistral_tokenizer: Path, tmp_path: Path) -> None:
    """transformers 5 saves a Metaspace, which treats one kind of text otherwise than SentencePiece."""
    transformers.AutoTokenizer.from_pretrained(mistral_tokenizer).save_pretrained(tmp_path)
    file = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert isinstance(file.pre_tokenizer, pre_tokenizers.Metaspace)
    notices: list[str] = []
    made = Tokenizer.from_metadata(vocabulary_entries(folder_of(tmp_path), 32000, None, notices.append))
    (notice,) = notices
    assert "a text that begins with a space will get SentencePiece's own ids" in notice
    original = tokenizers.Tokenizer.from_file(str(mistral_tokenizer / "tokenizer.json"))
    for text in random_texts(100, seed=8):
        assert made.encode(text) == original.encode(text, add_special_tokens=False).ids, text
        if not text.startswith((" ", "▁")):
            assert made.encode(text) == file.encode(text, add_special_tokens=False).ids, text


def test_special_tokens_of_real_vocabularies(real: Real) -> None:
    tokens = real.file.get_added_tokens_decoder()
    assert tokens
    for i, token in tokens.items():
        assert real.tokenizer.special_id(token.content) == i
        assert real.tokenizer.is_control(i) is (token.special and token.content != "<unk>")
        text = f"a{token.content}b"
        if real.pre != "default":  # tokenizers puts no space before what follows a special token there
            assert real.tokenizer.encode(text, special=True) == real.file.encode(text, add_special_tokens=False).ids
    assert real.ends <= real.tokenizer.eog


def test_ids_beyond_the_vocabulary_are_unused(real: Real) -> None:
    used = set(real.file.get_vocab(with_added_tokens=True).values())
    mask = real.tokenizer.decodable_mask(real.n_vocab)
    assert {i for i in range(real.n_vocab) if mask[i]} == used


def test_prompts_of_real_templates(real: Real) -> None:
    config = json.loads((real.path / "tokenizer_config.json").read_text())
    assert real.entries.get("tokenizer.chat_template") == config.get("chat_template")
    if "chat_template" not in config:
        return
    theirs = transformers.AutoTokenizer.from_pretrained(real.path)
    for messages, options in ((CHAT, {}), (CHAT[1:2], {"date_string": "1 May 2026", "enable_thinking": False})):
        wanted = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)
        if "date_string" in wanted or (not options and "Cutting Knowledge" in wanted):
            continue  # it writes today's date
        assert ChatTemplate.from_metadata(real.entries).render(messages, **options) == wanted


def test_a_name_for_every_way_of_cutting() -> None:
    """Each known pre-tokenizer is told apart from all others, and found again under its first name."""
    first: dict[Any, str] = {}
    for name, kind in PRE_TOKENIZERS.items():
        first.setdefault((kind.expressions, kind.ignore_merges, kind.composes), name)
    for name, kind in PRE_TOKENIZERS.items():
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = kind.build()  # type: ignore[assignment]
        normalizer = {"type": "NFC"} if kind.composes else None
        found = name_of(tokenizer, normalizer, kind.ignore_merges)
        assert found == first[(kind.expressions, kind.ignore_merges, kind.composes)], name


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
NEAR_MISSES = {
    "two digits": GPT2.replace(r"\p{N}+", r"\p{N}{1,2}"),
    "no contraction 'd": GPT2.replace("|'d", ""),
    "letters with marks": GPT2.replace(r" ?\p{L}+", r" ?[\p{L}\p{M}]+"),
    "decimal digits only": GPT2.replace(r" ?\p{N}+", r" ?\p{Nd}+"),
    "spaces of ASCII only": GPT2.replace(r"[^\s", r"[^ \t\r\n"),
    "tabs before words": GPT2.replace(r" ?\p{L}+", r"[ \t]?\p{L}+"),
}


def cut_by(expression: str) -> tokenizers.Tokenizer:
    tokenizer = byte_tokenizer()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(expression), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def test_it_is_what_a_tokenizer_does_that_counts() -> None:
    """GPT-2's own object has no expression to compare, and another spelling of one is the same."""
    tokenizer = cut_by(GPT2.replace("'s|'t|'re|'ve|'m|'ll|'d", "'(?:[stmd]|ll|ve|re)"))
    assert name_of(tokenizer, None, False) == "gpt-2"
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    assert name_of(tokenizer, None, False) == "gpt-2"


def test_smollm_is_known_as_its_makers_wrote_it() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert name_of(tokenizer, None, False) == "smollm"


@pytest.mark.parametrize("miss", NEAR_MISSES)
def test_a_near_miss_is_no_match(tmp_path: Path, miss: str) -> None:
    tokenizer = cut_by(NEAR_MISSES[miss])
    assert tokenizer.pre_tokenizer.pre_tokenize_str(short_probe() + long_probe())  # it does cut
    write_tokenizer(tmp_path, tokenizer)
    with pytest.raises(ConvertError, match=r"tokenizer.json: key 'pre_tokenizer': cuts text .* --pre NAME .*qwen2, "):
        vocabulary_entries(folder_of(tmp_path), 288, None, print)


def test_the_name_can_be_given(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, cut_by(NEAR_MISSES["two digits"]))
    notices: list[str] = []
    entries = vocabulary_entries(folder_of(tmp_path), 288, "gpt-2", notices.append)
    assert entries["tokenizer.ggml.pre"] == "gpt-2"
    write_tokenizer(tmp_path, cut_by(GPT2))
    vocabulary_entries(folder_of(tmp_path), 288, "gpt-2", pytest.fail)
    with pytest.raises(ConvertError, match=r"tokenizer.json: .*'nonesuch', which names no known pre-tokenizer"):
        vocabulary_entries(folder_of(tmp_path), 288, "nonesuch", print)


def test_other_ids_under_a_given_name_are_told(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, byte_tokenizer(merges=(("1", "2"), ("Ġ", "w"))))
    notices: list[str] = []
    vocabulary_entries(folder_of(tmp_path), 288, "gpt-2", notices.append)
    (notice,) = notices
    assert "minfer's tokenizer (gpt-2) makes other ids of a text than this file does; --pre gpt-2 is written" in notice


@pytest.mark.parametrize("spelling", ["pairs", "texts"])
def test_both_spellings_of_merges(tmp_path: Path, spelling: str) -> None:
    write_tokenizer(tmp_path)

    def respell(value: dict[str, Any]) -> None:
        value["model"]["merges"] = [["h", "e"], ["Ġ", "w"]] if spelling == "pairs" else ["h e", "Ġ w"]

    edit_json(tmp_path / "tokenizer.json", respell)
    entries = vocabulary_entries(folder_of(tmp_path), 288, None, print)
    assert entries["tokenizer.ggml.merges"] == ["h e", "Ġ w"]
    made, file = Tokenizer.from_metadata(entries), byte_tokenizer()
    assert made.encode("he the world") == file.encode("he the world").ids
    assert len(made.encode("he the world")) == 9


def test_tokens_that_only_the_config_adds(tmp_path: Path) -> None:
    added = {"265": {"content": "<tool>", "special": False}, "270": {"content": "<|x|>", "special": True}}
    write_tokenizer(tmp_path, added_tokens_decoder=added)
    made = Tokenizer.from_metadata(vocabulary_entries(folder_of(tmp_path), 288, None, print))
    assert [made.special_id(text) for text in ("<tool>", "<|x|>")] == [265, 270]
    assert [made.is_control(i) for i in (265, 270, 258)] == [False, True, True]
    assert [i for i in range(288) if made.decodable_mask(288)[i]] == [*range(261), 265, 270]


ENDS = {
    "config.json alone": ({}, {"eos_token_id": 260}, {}, {260, 258}),
    "generation_config.json first": ({"eos_token_id": [260, 100, 101]}, {"eos_token_id": 5}, {}, {260, 258, 100, 101}),
    "one id": ({"eos_token_id": 97}, {}, {}, {260, 258, 97}),
    "no eos in the tokenizer": ({"eos_token_id": [97, 98, 99]}, {}, {"eos_token": None}, {260, 258, 97, 98, 99}),
}


@pytest.mark.parametrize("case", ENDS)
def test_every_end_is_kept(tmp_path: Path, case: str) -> None:
    generation, config, tokenizer_config, ends = ENDS[case]
    write_tokenizer(tmp_path, **tokenizer_config)
    entries = vocabulary_entries(folder_of(tmp_path, generation, config), 288, None, pytest.fail)
    assert Tokenizer.from_metadata(entries).eog == ends


def test_an_end_without_a_place_is_told(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    notices: list[str] = []
    entries = vocabulary_entries(folder_of(tmp_path, {"eos_token_id": [97, 98, 99]}), 288, None, notices.append)
    assert notices == ["token 99 ends a text by generation_config.json, and GGUF has no role left for it"]
    assert Tokenizer.from_metadata(entries).eog == {260, 258, 97, 98}


def around(*parts: str) -> processors.TemplateProcessing:
    specials = [("<|im_start|>", 259), ("<|im_end|>", 260), ("<|endoftext|>", 258)]
    return processors.TemplateProcessing(single=" ".join(parts), pair=None, special_tokens=specials)  # type: ignore[arg-type]


STARTS: dict[str, tuple[tuple[str, ...], dict[str, Any], list[int]]] = {
    "neither": (("$A",), {}, []),
    "bos": (("<|im_start|>", "$A"), {}, [259]),
    "both": (("<|im_start|>", "$A", "<|im_end|>"), {}, [259, 260]),
    "the config says no": (("<|im_start|>", "$A"), {"add_bos_token": False}, []),
    "the config says yes": (("$A",), {"add_bos_token": True, "add_eos_token": True}, [259, 260]),
}


@pytest.mark.parametrize("case", STARTS)
def test_what_is_added_around_a_text(tmp_path: Path, case: str) -> None:
    parts, config, added = STARTS[case]
    tokenizer = byte_tokenizer()
    tokenizer.post_processor = around(*parts)  # type: ignore[assignment]
    write_tokenizer(tmp_path, tokenizer, bos_token="<|im_start|>", **config)
    made = Tokenizer.from_metadata(vocabulary_entries(folder_of(tmp_path), 288, None, print))
    plain = made.encode("xyz")
    ids = made.encode("xyz", add_bos=None, add_eos=None)
    assert [i for i in ids if i not in plain] == added
    assert [ids[0] == 259, ids[-1] == 260] == [259 in added, 260 in added]


TEMPLATES: dict[str, tuple[dict[str, str], Any, dict[str, Any]]] = {
    "tokenizer_config.json": ({}, "A", {"": "A"}),
    "chat_template.jinja comes first": ({"chat_template.jinja": "B\n"}, "A", {"": "B\n"}),
    "chat_template.json": ({"chat_template.json": '{"chat_template": "C"}'}, "A", {"": "C"}),
    "named ones": (
        {},
        [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "T"}],
        {"": "A", "s": ["tool_use"], ".tool_use": "T"},
    ),
    "files of named ones": (
        {"chat_template.jinja": "B", "additional_chat_templates/rag.jinja": "R"},
        None,
        {"": "B", "s": ["rag"], ".rag": "R"},
    ),
    "none": ({}, None, {}),
}


@pytest.mark.parametrize("case", TEMPLATES)
def test_where_a_template_may_be(tmp_path: Path, case: str) -> None:
    files, in_config, wanted = TEMPLATES[case]
    write_tokenizer(tmp_path, chat_template=in_config)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    entries = vocabulary_entries(folder_of(tmp_path), 288, None, print)
    key = "tokenizer.chat_template"
    assert {name.removeprefix(key): value for name, value in entries.items() if name.startswith(key)} == wanted


def test_a_template_renders_as_in_transformers(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = ChatTemplate.from_metadata(vocabulary_entries(folder_of(tmp_path), 288, None, print))
    assert ours.source == CHATML
    assert ours.render(CHAT) == theirs.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)


def _set(*path: str | int, to: Any) -> Any:
    def change(value: Any) -> None:
        for step in path[:-1]:
            value = value[step]
        value[path[-1]] = to

    return change


REFUSED: dict[str, tuple[str, Any, str]] = {
    "another model": (
        "tokenizer.json",
        _set("model", to={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}),
        r"key 'model.type': is 'WordLevel'; BPE",
    ),
    "dropout": ("tokenizer.json", _set("model", "dropout", to=0.5), r"key 'model.dropout': is 0.5, which GGUF"),
    "no JSON of a tokenizer": (
        "tokenizer.json",
        _set("model", to={"type": "BPE"}),
        r"tokenizer.json: the tokenizers library can't read it",
    ),
    "lower case": ("tokenizer.json", _set("normalizer", to={"type": "Lowercase"}), r"key 'pre_tokenizer': cuts text"),
    "an id too many": (
        "tokenizer.json",
        _set("model", "vocab", "he", to=288),
        r"'he' has id 288, but the embedding table has 288 rows",
    ),
    "one id twice": ("tokenizer.json", _set("model", "vocab", "he", to=3), r"id 3 is both '.' and 'he'"),
    "a stripping token": (
        "tokenizer.json",
        _set("added_tokens", 0, "lstrip", to=True),
        r"'<\|endoftext\|>' has lstrip, which",
    ),
    "bos that is no token": (
        "tokenizer_config.json",
        _set("bos_token", to="<s>"),
        r"tokenizer_config.json: key 'bos_token': is '<s>', which is no token",
    ),
    "add_bos without bos": (
        "tokenizer_config.json",
        _set("add_bos_token", to=True),
        r"add_bos is asked for, but the model has no",
    ),
    "add_bos that is no flag": (
        "tokenizer_config.json",
        _set("add_bos_token", to="yes"),
        r"key 'add_bos_token': is 'yes', expected true",
    ),
    "a template of numbers": (
        "tokenizer_config.json",
        _set("chat_template", to=[1]),
        r"key 'chat_template': is \[1\], no template",
    ),
    "a nameless template": (
        "tokenizer_config.json",
        _set("chat_template", to=[{"name": 1, "template": "x"}]),
        r"a name or a template that is no string",
    ),
    "an added token without text": (
        "tokenizer_config.json",
        _set("added_tokens_decoder", to={"270": {}}),
        r"'added_tokens_decoder': is no object of ids",
    ),
    "an added token without id": (
        "tokenizer_config.json",
        _set("added_tokens_decoder", to={"x": {"content": "y"}}),
        r"'added_tokens_decoder': is no object of ids",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_convert_is_refused_with_its_place(tmp_path: Path, case: str) -> None:
    file, change, message = REFUSED[case]
    write_tokenizer(tmp_path)
    edit_json(tmp_path / file, change)
    with pytest.raises(ConvertError, match=message) as caught:
        vocabulary_entries(folder_of(tmp_path), 288, None, print)
    assert caught.value.path is not None
    assert caught.value.path.parent == tmp_path


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        ({"eos_token_id": 288}, r"generation_config.json: key 'eos_token_id': is 288: 288 is no id .* 288 tokens"),
        ({"eos_token_id": [1, "2"]}, r"'eos_token_id': is \[1, '2'\]: '2' is no id"),
        ({"eos_token_id": -1}, r"'eos_token_id': is -1: -1 is no id"),
        ({"eos_token_id": True}, r"'eos_token_id': is True: True is no id"),
    ],
)
def test_ends_that_are_no_ids(tmp_path: Path, generation: dict[str, Any], message: str) -> None:
    write_tokenizer(tmp_path)
    with pytest.raises(ConvertError, match=message):
        vocabulary_entries(folder_of(tmp_path, generation), 288, None, print)


def test_a_folder_without_tokenizer_json(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"tokenizer.json: is missing$"):
        vocabulary_entries(folder_of(tmp_path), 288, None, print)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(ConvertError, match=r"tokenizer.json: is missing; tokenizer.model alone isn't read"):
        vocabulary_entries(folder_of(tmp_path), 288, None, print)


def test_a_bos_in_the_middle_is_refused(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.post_processor = around("<|endoftext|>", "$A")  # type: ignore[assignment]
    write_tokenizer(tmp_path, tokenizer, bos_token="<|im_start|>")
    with pytest.raises(ConvertError, match=r"post-processor adds \[258\], which aren't the BOS token"):
        vocabulary_entries(folder_of(tmp_path), 288, None, print)


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 300), st.floats(), st.text(max_size=4),
    st.just([]), st.just({}), st.just([[]]), st.just({"type": "x"}), st.just(["a", 1]),
)  # fmt: skip


@settings(max_examples=60)
@given(st.data())
def test_damaged_json_converts_or_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged", numbered=True)
    write_tokenizer(folder)
    name = data.draw(st.sampled_from(["tokenizer.json", "tokenizer_config.json"]))

    def damage(value: Any) -> Any:
        root = value
        while True:
            keys = list(value) if isinstance(value, dict) else range(len(value))
            key = data.draw(st.sampled_from(sorted(keys, key=str)))
            if not isinstance(value[key], dict | list) or not value[key] or data.draw(st.booleans()):
                value[key] = data.draw(JUNK)
                return root
            value = value[key]

    edit_json(folder / name, damage)
    try:
        entries = vocabulary_entries(folder_of(folder), 288, None, lambda _: None)
    except ConvertError as error:
        assert "\n" not in str(error)
        return
    Tokenizer.from_metadata(entries)


def test_a_normalizer_is_part_of_what_a_tokenizer_does(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    names = []
    for normalizer in (normalizers.NFC(), None):
        tokenizer.normalizer = normalizer  # type: ignore[assignment]
        write_tokenizer(tmp_path, tokenizer)
        names.append(vocabulary_entries(folder_of(tmp_path), 288, None, pytest.fail)["tokenizer.ggml.pre"])
    kinds = [PRE_TOKENIZERS[name] for name in names]
    assert [kind.composes for kind in kinds] == [True, False]
    assert kinds[0].expressions == kinds[1].expressions
