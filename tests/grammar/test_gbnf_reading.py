"""What GBNF means, construct by construct, and what is refused: where, and why."""

from __future__ import annotations

from typing import Any

import pytest
from small_vocabulary import allowed, vocabulary

from minfer_models.grammar import CompiledGrammar, GrammarError, Vocabulary, compile_gbnf


@pytest.fixture(scope="module")
def small() -> Vocabulary:
    return vocabulary((b"ab",), control=("<|tool|>", "<|x|>"), user=("<think>", "</think>"))


def accepts(grammar: CompiledGrammar, text: str) -> bool:
    """Whether the text, byte by byte, is one of the grammar."""
    matcher = grammar.matcher()
    for byte in text.encode():
        if byte not in allowed(matcher):
            return False
        matcher.accept(byte)
    return matcher.complete


# grammar, texts that it describes, texts that it doesn't
MEANINGS = [
    ('root ::= "abc"', ["abc"], ["", "ab", "abcd"]),
    ('root ::= "a" | "bc" |', ["a", "bc", ""], ["b", "abc"]),
    ('root ::= | "a"', ["", "a"], ["aa"]),
    ('root ::= "a" "b" "c"', ["abc"], ["ab"]),
    ('root ::= ("a" | "b") "c"', ["ac", "bc"], ["abc", "c"]),
    ('root ::= "a"*', ["", "a", "aaa"], ["b"]),
    ('root ::= "ab"*', ["", "ab", "abab"], ["abb", "a"]),
    ('root ::= "a"+', ["a", "aaa"], [""]),
    ('root ::= "a"?', ["", "a"], ["aa"]),
    ('root ::= "a"{2}', ["aa"], ["a", "aaa"]),
    ('root ::= "a"{2,}', ["aa", "aaaaa"], ["a"]),
    ('root ::= "a"{1,3}', ["a", "aaa"], ["", "aaaa"]),
    ('root ::= "a"{0,2}', ["", "aa"], ["aaa"]),
    ('root ::= "a"{ 1 , 3 }', ["aaa"], [""]),
    ('root ::= "a"{0}', [""], ["a"]),
    ('root ::= "a" * "b"', ["b", "aab"], ["a"]),
    ('root ::= "a"{2}{2}', ["aaaa"], ["aa", "aaa"]),
    ("root ::= [abc]", ["a", "c"], ["d", "ab", ""]),
    ("root ::= [a-cx]", ["b", "x"], ["d", "-"]),
    ("root ::= [a-]", ["a", "-"], ["b"]),
    ("root ::= [-a]", ["a", "-"], ["b"]),
    ("root ::= [+*/-]", ["+", "-", "/"], [","]),
    ("root ::= [^a-c\\n]", ["d", "é", "€", "😀", "\t"], ["a", "\n", ""]),
    ("root ::= [a^]", ["^", "a"], ["b"]),
    ("root ::= [\\]\\[\\\\]", ["]", "[", "\\"], ["a"]),
    ('root ::= ["/]', ['"', "/"], ["a"]),
    ("root ::= [ぁ-ゟ]+", ["あい"], ["ア", "a"]),
    ("root ::= [\\x41-\\x43\\u00e9\\U0001F600-\\U0001F64F]+", ["ABé", "😀🙏"], ["D", "e"]),
    ('root ::= "\\x41\\u00E9\\U0001f600"', ["Aé😀"], ["A"]),
    ('root ::= "\\n\\r\\t\\\\\\"\\[\\]"', ['\n\r\t\\"[]'], ["n"]),
    ('root ::= "a\nb"', ["a\nb"], ["ab"]),
    ('root ::= "é/*#|()[]{}"', ["é/*#|()[]{}"], ["é"]),
    ("root ::= .", ["a", "\n", "😀"], ["", "ab"]),
    ('root ::= "\\x00" .', ["\0\0"], ["a"]),
    ("root ::= [\\x00-\\U0010FFFF]", ["a", "\U0010ffff", "\ue000"], [""]),
    ("root ::= [\\uD700-\\uE000]", ["\ud7ff", "\ue000"], ["a"]),
    ('root ::= a-b_C1\na-b_C1 ::= "x"', ["x"], ["y"]),
    ('# first\nroot ::= # here\n  "a" # there\n# last', ["a"], ["#"]),
    ('root ::= "a"\r\n\r\n# c\r\n', ["a"], ["\r"]),
    ('root ::=\n  "a" |\n  "b"', ["a", "b"], [""]),
    ('root ::= (\n  # one\n  "a"\n  "b"*\n  | "c"\n)\n', ["a", "abb", "c"], ["b"]),
    ('root ::= ("a" ("b" ("c")?)?)?', ["", "a", "ab", "abc"], ["b"]),
    ('b ::= "b"\nroot ::= "a" b\nunused ::= unknown-to-none\nunknown-to-none ::= "x"', ["ab"], ["a"]),
    ('root ::= "(" root ")" | "x"', ["x", "((x))"], ["(x", "(x))"]),
    ('root ::= root "a" | "b"', ["b", "baaa"], ["a", ""]),
    ('root ::= root "+" root | [0-9]', ["1", "1+2+3"], ["1+", "+"]),
    ('root ::= "a" root "b" | ""', ["", "ab", "aabb"], ["aab", "ba"]),
    ('root ::= x "b"\nx ::= y "a" | "c"\ny ::= x', ["cb", "cab", "caab"], ["b", "ca"]),
    ('root ::= "a" root | "b"', ["b", "aab"], ["ba", "a"]),
    ('root ::= "[" (root | "a" | "ab" | "bc")* "]"', ["[abc]", "[[a]ab]", "[]"], ["[c]", "[ac]"]),
    ('root ::= "a" p "cd" | [ab] q\np ::= "(" p ")" | "b"\nq ::= "[" q "]" | "bcx"',
     ["abcd", "abcx", "bbcx", "a(b)cd"], ["bbcd"]),
    ('root ::= ("a" | "aa") "a"', ["aa", "aaa"], ["a", "aaaa"]),
    ('root ::= r | "(" root ")"\nr ::= ("a" | "aa") "a"', ["aa", "aaa", "(aa)"], ["a", "(a)"]),
    ('root ::= "(" root ")" | w end\nw ::= [a-z]+\nend ::= "s" | "(" root ")"', ["as", "ass", "(as)"], ["s", "a"]),
    ("root ::= ([ab]? [b]?)* root?", ["", "ab", "bbb"], ["c"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "inside", "outside"), MEANINGS)
def test_what_a_grammar_means(small: Vocabulary, text: str, inside: list[str], outside: list[str]) -> None:
    grammar = compile_gbnf(text, small)
    assert [word for word in inside if not accepts(grammar, word)] == []
    assert [word for word in outside if accepts(grammar, word)] == []


REFUSALS = [
    ("", "there is no rule called root, where it would start; it has no rule at all"),
    ('start ::= "a"', "there is no rule called root, where it would start; it has start"),
    ('root ::= "a', 'line 1, column 10: a text in " never ends'),
    ("root ::= [a", "line 1, column 10: a class in [ never ends"),
    ("root ::= []", "line 1, column 10: [] matches no character"),
    ("root ::= [\\uD800-\\uDFFF]", "column 10: [\\uD800-\\uDFFF] matches no character"),
    ("root ::= [z-a]", "column 11: the range z-a ends before it starts"),
    ('root ::= "a"\n\nx = "b"', "line 3, column 3: expected ::= behind the rule's name x, not '='"),
    ('root ::= "a" )', "column 14: expected the end of rule root's line, not ')'"),
    ('root ::= ("a"', "column 14: expected ) for the ( at line 1, column 10, not the end of the grammar"),
    ('root ::= ("a" ]\n)', "column 15: expected ) for the ( at line 1, column 10, not ']'"),
    ("root ::= * ", "column 10: nothing stands before * that it could repeat"),
    ('root ::= "a" | + ', "column 16: nothing stands before + that it could repeat"),
    ('root ::= "a"{', "column 14: expected a number, not the end of the grammar"),
    ('root ::= "a"{,3}', "column 14: expected a number, not ','"),
    ('root ::= "a"{3,2}', "column 13: {3,2} asks for at least 3 and at most 2"),
    ('root ::= "a"{1;2}', "column 15: expected } for the { at line 1, column 13, not ';'"),
    ('root ::= "a"{99999999999}', "99999999999 repetitions are more than 100000"),
    ('root ::= "\\q"', "column 11: \\q is no escape"),
    ('root ::= "\\x4"', "column 11: \\x takes 2 hexadecimal digits, not '4\"'"),
    ('root ::= "\\uD800"', "column 11: U+D800 is a surrogate"),
    ('root ::= "\\U00110000"', "column 11: \\U00110000 is no code point"),
    ('root ::= "a"\n b ::= "c"\nroot ::= "d"', "line 3, column 1: rule root is defined again; the first is at line 1"),
    ('root ::= "a"\n  x', "line 2, column 4: expected ::= behind the rule's name x, not the end of the grammar"),
    ('root ::= "a" x\n  | "b"', "line 2, column 3: expected the name of a rule, not '|'"),
    ('root ::= "a" | nowhere', "line 1, column 16: there is no rule called nowhere"),
    ('root ::= "a" root', "line 1, column 1: rule root never ends"),
    ('root ::= "a" | b\nb ::= c\nc ::= "x" b', "line 2, column 1: rule b never ends"),
    ("root ::= <>", "column 10: expected a token, <text> or <[id]>"),
    ('root ::= "a" !"b"', "column 14: expected a token"),
    ("root ::= <[99999]>", "column 10: there is no token 99999; the last is"),
    ("root ::= <no such>", "column 10: <no such> is 9 tokens of this vocabulary, not one"),
    ('root ::= <think> | "<t"', "column 10: the token could also be read as the text that may stand here"),
    ("root ::= [a-z]+ !<[5]>", "column 17: the token could also be read as the text"),
    ("root ::= " + "(" * 200 + '"a"' + ")" * 200, "more than 100 groups are nested"),
    ('root ::= "a"' + "*" * 200, "more than 100 repetitions of one item"),
    ('root ::= "' + "a" * (1 << 20) + '"', "has 1048587 characters; at most 1048576 are read"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSALS, ids=range(len(REFUSALS)))
def test_what_is_no_grammar_is_refused_where_it_stands(small: Vocabulary, text: str, said: str) -> None:
    with pytest.raises(GrammarError) as error:
        compile_gbnf(text, small)
    assert said in str(error.value)
    assert str(error.value).startswith(("grammar, line", "grammar: ", "the grammar "))


@pytest.mark.parametrize("grammar", [5, b'root ::= "a"', None, ["a"]])
def test_what_is_no_text_is_no_grammar(small: Vocabulary, grammar: Any) -> None:
    with pytest.raises(GrammarError, match=f"the grammar is a {type(grammar).__name__}, not text"):
        compile_gbnf(grammar, small)


def test_tokens_are_named_by_text_or_id(small: Vocabulary) -> None:
    tool, x = (small.tokenizer.special_id(text) for text in ("<|tool|>", "<|x|>"))
    assert tool is not None
    assert x is not None
    for name in ("<|tool|>", f"<[{tool}]>"):
        matcher = compile_gbnf(f'root ::= {name} "a"', small).matcher()
        assert allowed(matcher) == {tool}
        matcher.accept(tool)
        assert allowed(matcher) == {ord("a"), small.tokens.index(b"a", 256)}


def test_a_negated_token_is_any_other_but_an_end(small: Vocabulary) -> None:
    close = small.tokenizer.special_id("</think>")
    assert close is not None
    matcher = compile_gbnf('root ::= <think> !</think>* </think> "b"', small).matcher()
    matcher.accept(small.tokens.index(b"<think>"))
    assert allowed(matcher) == set(range(small.n_tokens)) - small.eog
    for token in (ord("x"), small.tokens.index(b"<|x|>"), close):
        matcher.accept(token)
    assert allowed(matcher) == {ord("b")}


def test_control_tokens_are_no_text(small: Vocabulary) -> None:
    spelled = compile_gbnf('root ::= "<|tool|>"', small)
    assert allowed(spelled.matcher()) == {ord("<")}
    anything = allowed(compile_gbnf("root ::= .*", small).matcher())
    assert anything & small.special == small.eog
    assert small.tokens.index(b"<think>") in anything  # user-defined: text like any other
