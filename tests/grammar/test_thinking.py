"""A grammar behind a thinking block: the block is free, its end is exact, and it may be missing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabulary import allowed, vocabulary

from minfer_models.grammar import AfterThinking, GrammarError, ThinkingTokens, Vocabulary, compile_gbnf
from minfer_models.grammar.thinking import CLOSE, close_tag, is_open

PIECES = (b"<th", b"ink>", b"think", b"</", b"</th", b"ink>\n", b"k>{", b"k> {", b"k>\n\n", b"hm", b"</think>{",
          b"<think>hm",
          b"<think></think>", b"\n\n", b"{}", b"><", b"<</", b"k>\n\n\n\n\n")  # fmt: skip
CHOSEN = {*PIECES, *(bytes([byte]) for byte in b"<{a}\n>")}
GRAMMAR = 'root ::= "{" [a-z]* "}"'
WHOLE = re.compile(rb"(?s)(?:<think>(?:(?!</think>).)*</think>[ \t\r\n]{0,4})?\{[a-z]*\}")
OPENED = re.compile(rb"(?s)(?:(?!</think>).)*</think>[ \t\r\n]{0,4}\{[a-z]*\}")


@pytest.fixture(scope="module")
def spelled() -> Vocabulary:
    """No token is a tag as a whole."""
    return vocabulary(PIECES, control=("<|tool|>",))


def bound(tokens: Vocabulary, opened: bool = False) -> AfterThinking:
    return AfterThinking(compile_gbnf(GRAMMAR, tokens).matcher(), ThinkingTokens(tokens), opened)


def feed(constraint: AfterThinking, text: bytes) -> bool:
    for byte in text:
        if byte not in allowed(constraint):
            return False
        constraint.accept(byte)
    return True


@pytest.mark.parametrize(
    ("text", "opened", "complete"),
    [
        (b"{ab}", False, True),
        (b"<think></think>{}", False, True),
        (b"<think>\nif a > b {x} <b> </thin </think>\n\n{a}", False, True),
        (b"<think>{}", False, False),
        (b"hm {} </think>{a}", True, True),
        (b"{}", True, False),
        (b"<think></think>", True, False),
    ],
)
def test_what_is_bound_comes_behind_the_block(spelled: Vocabulary, text: bytes, opened: bool, complete: bool) -> None:
    constraint = bound(spelled, opened)
    assert feed(constraint, text)
    assert constraint.complete == constraint.finished == complete
    assert (allowed(constraint) == spelled.eog) == complete


@pytest.mark.parametrize("text", [b"a", b"<think></think>x", b"<think></think>\n\n\n\n\n", b"<thunk>", b"\n{"])
def test_what_is_not_bound_by_a_block_is_refused(spelled: Vocabulary, text: bytes) -> None:
    assert not feed(bound(spelled), text)


def test_a_generation_cannot_end_within_the_block(spelled: Vocabulary) -> None:
    constraint = bound(spelled, opened=True)
    assert allowed(constraint) & spelled.special == set()
    with pytest.raises(GrammarError, match="can't follow here"):
        constraint.accept(min(spelled.eog))


@settings(max_examples=60)
@given(st.data(), st.booleans())
def test_every_mask_leads_to_whole_texts_and_no_others(spelled: Vocabulary, data: st.DataObject, opened: bool) -> None:
    """Tokens that lie across the tags: an allowed one can go on to a whole text, and each whole text is allowed."""
    constraint, text, whole = bound(spelled, opened), b"", OPENED if opened else WHOLE
    for _ in range(data.draw(st.integers(1, 12))):
        now = allowed(constraint)
        for token, piece in enumerate(spelled.tokens):
            if token in spelled.special or not piece:
                continue
            fits = any(whole.fullmatch(text + piece + end) for end in endings(text + piece))
            assert (token in now) == (fits and not goes_on(text, piece)), piece
        assert constraint.complete == (whole.fullmatch(text) is not None)
        pieces = [token for token in sorted(now - spelled.eog) if spelled.tokens[token] in CHOSEN]
        if not pieces:
            break
        token = data.draw(st.sampled_from(pieces))
        constraint.accept(token)
        text += spelled.tokens[token]


def goes_on(text: bytes, piece: bytes) -> bool:
    """Whether the piece ends the block and has more than blanks behind it, which isn't offered even where it fits."""
    end = (text + piece).find(CLOSE) + len(CLOSE)
    return end >= len(CLOSE) and end > len(text) and bool((text + piece)[end:].strip())


def endings(text: bytes) -> list[bytes]:
    """What could make a text whole: the rest of a tag, of the block, and of what is bound."""
    rests = [b"", b"<think>"[len(text) :], *(CLOSE[n:] for n in range(len(CLOSE) + 1))]
    return [rest + close + end for rest in rests for close in (b"", CLOSE) for end in (b"", b"}", b"{}")]


def test_tags_that_are_tokens(qwen3_tokens: Vocabulary) -> None:
    tokenizer = qwen3_tokens.tokenizer
    constraint = bound(qwen3_tokens)
    for token in tokenizer.encode("<think>\nlet me see\n</think>\n\n{abc}", special=True):
        assert token in allowed(constraint)
        constraint.accept(token)
    assert constraint.finished
    control = vocabulary(control=("<think>", "</think>"))
    constraint = bound(control)
    constraint.accept(control.tokens.index(b"<think>"))
    constraint.accept(control.tokens.index(b"</think>"))
    assert feed(constraint, b"{}")


def test_rewinding_crosses_the_block(spelled: Vocabulary) -> None:
    constraint = bound(spelled)
    masks = [allowed(constraint)]
    text = b"<think>a</think>\n{b}"
    for byte in text:
        constraint.accept(byte)
        masks.append(allowed(constraint))
    for n in range(len(text), -1, -1):
        constraint.rewind(0 if n == len(text) else 1)
        assert allowed(constraint) == masks[n]
    with pytest.raises(GrammarError, match="can't rewind 1 tokens of 0"):
        constraint.rewind(1)


@settings(max_examples=200)
@given(st.text(st.sampled_from("</think>"), max_size=14), st.text(st.sampled_from("</think>"), max_size=10))
def test_the_closing_tag_is_found_across_tokens(before: str, after: str) -> None:
    text = before.encode() + after.encode()
    if CLOSE in before.encode():
        return
    matched, rest = close_tag(before.encode(), 0)
    assert rest is None
    matched, rest = close_tag(after.encode(), matched)
    assert rest == (text.partition(CLOSE)[2] if CLOSE in text else None)


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [("...<think>\n", True), ("<think>", True), ("<think> x", False), ("<think>\n\n</think>\n\n", False), ("", False)],
)
def test_a_prompt_may_have_opened_the_block(prompt: str, opened: bool) -> None:
    assert is_open(prompt) == opened
