"""Text is split into words and punctuation, in any script, and nothing but white space is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedviz.scenario import tokenizer


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ("Four score, and 7 years", ["Four", "score", ",", "and", "7", "years"]),
        ("", []),
        (" \n\t\u00a0\u2003 ", []),
        ("don't rock’n’roll 'quoted'", ["don't", "rock’n’roll", "'", "quoted", "'"]),
        ("<b>bold</b> & co", ["<", "b", ">", "bold", "<", "/", "b", ">", "&", "co"]),
        ("snake_case 3.14", ["snake_case", "3", ".", "14"]),
        ("...", [".", ".", "."]),
    ],
    ids=["example", "empty", "white space", "apostrophes", "markup", "underscore and point", "dots"],
)
def test_words_and_punctuation_marks_are_tokens(source, tokens):
    assert tokenizer.split(source) == tokens


@pytest.mark.parametrize("emoji", ["🙂", "👩‍👩‍👧‍👦", "👍🏽", "🇫🇷", "❤️"])
def test_emoji_is_one_token_however_many_code_points_it_has(emoji):
    assert tokenizer.split(f"a{emoji}{emoji} b") == ["a", emoji, emoji, "b"]


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ("שלום, עולם", ["שלום", ",", "עולם"]),
        ("مَرْحَبًا بِكُم", ["مَرْحَبًا", "بِكُم"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("cafe\u0301 naïve", ["cafe\u0301", "naïve"]),
    ],
    ids=["Hebrew", "Arabic with vowel signs", "Devanagari", "combining accent"],
)
def test_word_keeps_its_accents_and_vowel_signs_in_writing_order(source, tokens):
    assert tokenizer.split(source) == tokens


@given(st.text(max_size=40))
def test_nothing_but_white_space_is_lost(source):
    tokens = tokenizer.split(source)
    assert all(tokens)
    assert "".join("".join(tokens).split()) == "".join(source.split())


def test_ten_thousand_words_are_ten_thousand_tokens():
    assert len(tokenizer.split("word " * 10_000)) == 10_000
