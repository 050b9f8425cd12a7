"""Conversations with the vocabularies and templates of Qwen3 and Llama 3.1, on models whose weights are noise.

What the models say is chosen by the test; what they compute is real, and compared with a run that keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from transformers.utils.chat_template_utils import render_jinja_template

from minfer_models import load
from minfer_models.chat import ChatTemplateError
from minfer_models.conversation import Answer, Conversation
from minfer_models.sampling import Sampler
from minfer_models.synthetic import SyntheticModel, hf_vocabulary, write_model

SIZES: dict[str, Any] = {"n_blocks": 1, "width": 64, "ffn_width": 64, "n_heads": 2, "n_kv_heads": 1, "head_dim": 32}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
WEATHER = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Bern"}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'


class Saying:
    """A model with the words of a real one, of which the test chooses those that it says.

    Prompts are held against `transformers`, their ids against the makers' tokenizer, logits against a second engine.
    """

    def __init__(self, folder: Path, path: Path, architecture: str, pre: str, n_vocab: int, end: str) -> None:
        vocabulary = hf_vocabulary(folder, pre, n_vocab)
        write_model(path, SyntheticModel(architecture=architecture, vocabulary=vocabulary, n_ctx_train=1024, **SIZES))
        self._template, self._end = vocabulary["tokenizer.chat_template"], end
        self._hf = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.llm, self._fresh = (load(path, threads=2, chunk=64) for _ in range(2))
        self._words, self._seen, self._held = [], [], []
        sampler = self.llm.sampler
        self.llm.sampler = lambda *given: _Forced(sampler(*given), self._words, self._seen)  # type: ignore

    def ids(self, text: str) -> list[int]:
        return self._hf.encode(text, add_special_tokens=False).ids

    def rendered(self, answer: Answer, **arguments: Any) -> str:
        """What `transformers` makes of the messages that are answered."""
        variables = {"bos_token": "<|begin_of_text|>", "add_generation_prompt": True, **arguments}
        messages = [dict(message) for message in answer.asked.messages]
        return render_jinja_template([messages], chat_template=self._template, **variables)[0][0]

    def says(self, answer: Answer, prompt: str, text: str) -> tuple[int, int]:
        """Have the answer to `prompt` be `text`: tokens that were reused, and tokens that are new in the prompt."""
        ids = self.ids(prompt)
        common = next((n for n, (a, b) in enumerate(zip(self._held, ids, strict=False)) if a != b), len(self._held))
        common = min(common, len(ids) - 1)  # the last token gives the logits
        self._words[:], self._seen[:] = self.ids(text + self._end), []
        assert (answer.text(), answer.finish_reason, answer.token_ids) == (text, "stop", self._words)
        usage = answer.usage
        assert (usage.cached_tokens, usage.prefilled_tokens) == (common, len(ids) - common)
        logits = self._fresh.logits([*ids, *self._words])[len(ids) - 1 : -1]
        assert np.array_equal(np.stack(self._seen), logits), "the bits of a run that reuses nothing"
        self._held = [*ids, *self._words[:-1]]
        return usage.cached_tokens, usage.prefilled_tokens

    @contextmanager
    def talk(self, **options: Any) -> Iterator[Conversation]:
        self._held = []
        with self.llm.conversation(**options) as talk:
            yield talk

    def close(self) -> None:
        self.llm.close()
        self._fresh.close()


class _Forced:
    """Stands in for a sampler: says what it was given, and keeps the logits."""

    def __init__(self, sampler: Sampler, words: list[int], seen: list[np.ndarray]) -> None:
        self.seed, self.constraint = sampler.seed, None
        self._words, self._seen = words, seen

    def sample(self, logits: np.ndarray) -> int:
        self._seen.append(logits.copy())
        return self._words[len(self._seen) - 1]


@pytest.fixture(scope="module")
def qwen(qwen3_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saying]:
    path = tmp_path_factory.mktemp("models") / "qwen3.gguf"
    saying = Saying(qwen3_tokenizer, path, "qwen3", "qwen2", 151936, "<|im_end|>")
    yield saying
    saying.close()


@pytest.fixture(scope="module")
def llama(llama3_1_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saying]:
    path = tmp_path_factory.mktemp("models") / "llama.gguf"
    saying = Saying(llama3_1_tokenizer, path, "llama", "llama-bpe", 128256, "<|eot_id|>")
    yield saying
    saying.close()


def turn(role: str, text: str) -> str:
    """As ChatML writes it."""
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


ASKS = "<|im_start|>assistant\n"


def thought(text: str) -> str:
    return f"<think>\n{text}\n</think>\n\n"


def test_qwen3_leaves_earlier_thinking_out_and_the_rest_is_reused(qwen: Saying) -> None:
    with qwen.talk(system="Be brief.") as talk:
        first = turn("system", "Be brief.") + turn("user", "What is 2+2?") + ASKS
        qwen.says(talk.send("What is 2+2?"), first, thought("Easy.") + "Four.")
        assert talk.messages[-1] == {"role": "assistant", "content": "Four.", "reasoning_content": "Easy."}
        second = talk.send("And 3+3?")
        prompt = first + "Four.<|im_end|>\n" + turn("user", "And 3+3?") + ASKS
        assert prompt == qwen.rendered(second)
        reused, _ = qwen.says(second, prompt, thought("Hm.") + "Six.")
        assert reused == len(qwen.ids(first)), "up to where the thinking was"
        third = talk.send("x")
        reused, _ = qwen.says(third, qwen.rendered(third), "No thinking now.")
        assert reused == len(qwen.ids(prompt))
        again = talk.regenerate()
        reused, new = qwen.says(again, qwen.rendered(again), "y")
        assert (reused, new) == (len(qwen.ids(qwen.rendered(again))) - 1, 1)
        fourth = talk.send("z")
        qwen.says(fourth, qwen.rendered(fourth), "end")
        assert "<think>" not in qwen.rendered(fourth)


def test_qwen3_keeps_thinking_when_asked_and_nothing_is_computed_twice(qwen: Saying) -> None:
    with qwen.talk(keep_thinking=True) as talk:
        prompt, answers = turn("user", "What is 2+2?") + ASKS, ["Four.", "Six.", "Eight."]
        answer = talk.send("What is 2+2?")
        for text, question in zip(answers, ["And 3+3?", "And 4+4?", ""], strict=True):
            said = thought(f"I know: {text}") + text
            held = len(qwen.ids(prompt)) + len(qwen.ids(said))
            qwen.says(answer, prompt, said)
            prompt += said + "<|im_end|>\n" + turn("user", question) + ASKS
            if question:
                answer = talk.send(question)
                assert answer.new_tokens == len(qwen.ids(prompt)) - held
        alone = qwen.llm.chat([*talk.messages, {"role": "user", "content": ""}], keep_thinking=True)
        assert qwen.llm.tokenizer.decode(alone._prompt) == prompt
        dropped = qwen.llm.chat([*talk.messages, {"role": "user", "content": ""}])
        assert "<think>" not in qwen.llm.tokenizer.decode(dropped._prompt)


@pytest.mark.parametrize("keep", [False, True])
def test_qwen3_calls_tools_and_goes_on_with_their_results(qwen: Saying, keep: bool) -> None:
    with qwen.talk(tools=TOOLS, keep_thinking=keep) as talk:
        first = talk.send("Will it rain in Bern?")
        prompt, said = qwen.rendered(first, tools=TOOLS), thought("I must look.") + CALL
        qwen.says(first, prompt, said)
        assert talk.messages[-1] == {
            "role": "assistant", "content": "", "reasoning_content": "I must look.", "tool_calls": [WEATHER],
        }  # fmt: skip
        second = talk.send({"role": "tool", "content": "rain"})
        told = prompt + said + "<|im_end|>\n" + turn("user", "\n<tool_response>\nrain\n</tool_response>")[:-1]
        told = told.replace("user\n\n<tool_response>", "user\n<tool_response>") + "\n" + ASKS
        assert told == qwen.rendered(second, tools=TOOLS), "thinking before a call stays until the user speaks"
        reused, _ = qwen.says(second, told, thought("So it does.") + "Yes.")
        assert reused == len(qwen.ids(prompt + said))
        third = talk.send("Thanks.")
        if keep:
            whole = told + thought("So it does.") + "Yes.<|im_end|>\n" + turn("user", "Thanks.") + ASKS
            reused, _ = qwen.says(third, whole, "You're welcome.")
            assert reused == len(qwen.ids(told + thought("So it does.") + "Yes."))
        else:
            reused, _ = qwen.says(third, qwen.rendered(third, tools=TOOLS), "You're welcome.")
            assert reused == len(qwen.ids(prompt)), "from here on the first thinking is left out"


def test_qwen3_without_thinking(qwen: Saying) -> None:
    off = {"enable_thinking": False}
    with qwen.talk(template_arguments=off) as talk:
        first = talk.send("What is 2+2?")
        asked = turn("user", "What is 2+2?") + ASKS
        qwen.says(first, asked + "<think>\n\n</think>\n\n", "Four.")
        assert talk.messages[-1] == {"role": "assistant", "content": "Four."}
        second = talk.send("And 3+3?")
        assert "<think>" not in qwen.rendered(second, **off).removesuffix("<think>\n\n</think>\n\n")
        reused, _ = qwen.says(second, qwen.rendered(second, **off), "Six.")
        assert reused == len(qwen.ids(asked)), "the empty block is left out of the history, too"


def test_llama_3_1_answers_behind_one_bos(llama: Saying) -> None:
    with llama.talk(system="Be brief.") as talk:
        head = "<|start_header_id|>{}<|end_header_id|>\n\n".format
        prompt = "<|begin_of_text|>" + head("system") + "Be brief.<|eot_id|>"
        held = 0
        for question, said in (("Hi!", "Hello."), (" Who are you? ", "Ask <|eot_id|> not."), ("Bye", "Bye.")):
            answer = talk.send(question)
            prompt += head("user") + question.strip() + "<|eot_id|>" + head("assistant")
            assert prompt == llama.rendered(answer)
            reused, _ = llama.says(answer, prompt, said.replace("<|eot_id|> ", ""))
            assert reused == held, "all that was there"
            prompt += said.replace("<|eot_id|> ", "") + "<|eot_id|>"
            held = len(llama.ids(prompt)) - 1
        with pytest.raises(ChatTemplateError, match="takes no tools"):
            llama.llm.conversation(tools=TOOLS)
        with pytest.raises(ChatTemplateError, match="no argument 'enable_thinking'"):
            llama.llm.conversation(template_arguments={"enable_thinking": False})
        with pytest.raises(ChatTemplateError, match="no markers of thinking: there is none to keep"):
            llama.llm.conversation(keep_thinking=True)
