from __future__ import annotations

import re
import sys
from string import ascii_letters, digits

import pytest

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import _lexer
from kanon_db.query._lexer import MAX_LENGTH, Lexeme, scan


def pieces(text: str) -> list[tuple[str, str]]:
    return [(lexeme.kind, lexeme.text) for lexeme in scan(text)]


def test_letters_are_those_of_ascii_the_underscore_and_all_that_is_not_ascii() -> None:
    usual = set(ascii_letters + "_") | {chr(code) for code in range(128, sys.maxunicode + 1)}
    letters, more = re.compile(_lexer._LETTER), re.compile(_lexer._IN_WORD, re.VERBOSE)
    every = "\n".join(map(chr, range(sys.maxunicode + 1)))
    assert set(letters.findall(every)) == usual
    assert set(more.findall(every)) == usual | set(digits + "$")


def test_quoted_names_stay_as_they_are() -> None:
    assert pieces('"AGE" "say ""hi"""') == [("name", "AGE"), ("name", 'say "hi"')]


def test_strings_double_their_quotes_and_keep_backslashes() -> None:
    assert pieces(r"'it''s' 'a\' ''") == [("string", "it's"), ("string", "a\\"), ("string", "")]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("=-", ["=", "-"]),
        ("<>-", ["<>", "-"]),
        (">=+", [">=", "+"]),
        ("!=", ["!="]),
        ("<", ["<"]),
    ],
)
def test_operators_give_back_their_signs(run: str, expected: list[str]) -> None:
    assert [text for _, text in pieces(f"a {run}5")] == ["a", *expected, "5"]


@pytest.mark.parametrize("run", ["!=-", "=*", "><", "<=>", "==", "@-", "||", "->"])
def test_runs_that_are_one_operator_to_postgresql(run: str) -> None:
    with pytest.raises(UnsupportedQueryError, match="operator"):
        scan(f"a {run} 5")


def test_positions_count_from_one() -> None:
    assert scan("a\n = 'x'")[-1] == Lexeme("string", "x", 6)


@pytest.mark.parametrize("name", ["a" * 64, f'"{"é" * 32}"', "ä" * 32])
def test_names_that_postgresql_would_cut_off(name: str) -> None:
    with pytest.raises(UnsupportedQueryError, match="too long"):
        scan(name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a" * (MAX_LENGTH + 1), "too long"),
        ("a \0", "NUL"),
        ("'\ud800'", "Unicode"),
        ("a\u00a0b", "spaces"),
        ("\u2028", "spaces"),
        ("a = 'x", "does not end"),
        ("a = 'it''s", "does not end"),
        ("a -- b", "comments"),
        ("a =/* b */ 1", "comments"),
        ("{", "character"),
        ("a\x0bb", "character"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=reason):
        scan(text)


def test_a_refusal_says_where_and_not_what() -> None:
    with pytest.raises(UnsupportedQueryError) as refused:
        scan("name = 'canary' AND E'canary'")
    assert refused.value.detail == "at character 21 of the query"
    assert "canary" not in f"{refused.value.message} {refused.value.detail} {refused.value.hint}"
