"""Properties of reading queries: what is accepted means what it says, and nothing crashes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query.expressions import (
    And,
    Arithmetic,
    Case,
    Comparison,
    DatePart,
    Distinct,
    Expression,
    Literal,
    Membership,
    Name,
    Negative,
    Not,
    NullTest,
    Or,
    Pattern,
    Range,
    TruthTest,
    replace_parts,
)
from kanon_db.query.parse import parse_query
from tests.meaning.asked import ASKED
from tests.rewrite.test_fixtures import ANSWERED, REFUSED

PLAIN = [text for asked in ASKED for text in (asked.question, *asked.instead) if '"db"' not in text]
"""What is asked, but for names of databases, which the oracle does not read."""
CORPUS = [*ANSWERED, *(query for query, _ in REFUSED), *PLAIN]
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")

number = st.integers(-2, 2).map(lambda n: Literal("number", str(n)))
string = st.sampled_from(["", "a", "it's", "%_", "AND"]).map(lambda text: Literal("string", text))
column = st.sampled_from(["age", "size", "Group by"]).map(lambda name: Name((name,)))


def values_of(conditions: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.recursive(
        number | column | string | st.just(Literal("date", "2020-01-31")),
        lambda inner: st.one_of(
            st.builds(Arithmetic, st.sampled_from("+-*/%"), inner, inner),
            column.map(Negative),
            st.builds(DatePart, st.sampled_from(["extract", "date_part"]), st.just("year"), inner),
            st.builds(DatePart, st.just("date_trunc"), st.just("month"), inner),
            st.builds(
                Case,
                st.lists(st.tuples(conditions, inner), min_size=1, max_size=2).map(tuple),
                st.none() | inner,
            ),
        ),
        max_leaves=4,
    )


def conditions_of(value: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.builds(Comparison, st.sampled_from(COMPARISONS), value, value),
        st.builds(Distinct, value, value, st.booleans()),
        st.builds(
            Membership, value, st.lists(value, min_size=2, max_size=3).map(tuple), st.booleans()
        ),
        st.builds(Range, value, value, value, st.booleans()),
        st.builds(
            Pattern,
            value,
            st.sampled_from(["LIKE", "ILIKE", "~", "~*"]),
            string,
            st.none(),
            st.booleans(),
        ),
        st.builds(NullTest, value, st.booleans()),
    )


def flat(kind: type[And] | type[Or]):
    def join(parts: list[Expression]) -> Expression:
        pieces = (part.parts if isinstance(part, kind) else (part,) for part in parts)
        return kind(tuple(inner for piece in pieces for inner in piece))

    return join


predicates = st.recursive(
    conditions_of(values_of(conditions_of(number | column))),
    lambda part: st.one_of(
        st.builds(Not, part),
        st.builds(TruthTest, part, st.sampled_from(["true", "false", "unknown"]), st.booleans()),
        st.lists(part, min_size=2, max_size=3).map(flat(And)),
        st.lists(part, min_size=2, max_size=3).map(flat(Or)),
    ),
    max_leaves=6,
)


class Writer:
    """Writes expressions as SQL, each time in another of the ways that mean the same."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def choose(self, *texts: str) -> str:
        return self._data.draw(st.sampled_from(texts))

    def write(self, expression: Expression) -> str:
        gap = self.choose(" ", "\n", "  \t")
        inner = self.inner
        match expression:
            case Name((name,)):
                quoted = f'"{name}"'
                if " " in name:
                    return self.choose(quoted, f"t.{quoted}", f"({quoted})")
                return self.choose(name, name.upper(), quoted, f"t.{name}", f"({name})")
            case Literal("number", text):
                positive = "" if text.startswith("-") else "+"
                return self.choose(f"({text})", f"({positive}{text})", text)
            case Literal("string", text):
                return "'" + text.replace("'", "''") + "'"
            case Literal("date", text):
                return self.choose(f"DATE '{text}'", f"'{text}'::date", f"CAST('{text}' AS date)")
            case And(parts) | Or(parts):
                word = "AND" if isinstance(expression, And) else "or"
                return f"{gap}{word}{gap}".join(inner(part) for part in parts)
            case Not(part):
                return f"NOT{gap}{inner(part)}"
            case Negative(operand):
                return f"-{gap}{inner(operand)}"
            case Arithmetic(operator, left, right):
                return f"{inner(left)}{gap}{operator}{gap}{inner(right)}"
            case Comparison(operator, left, right):
                operator = self.choose("<>", "!=") if operator == "<>" else operator
                return f"{inner(left)}{gap}{operator}{gap}{inner(right)}"
            case Distinct(left, right, negated):
                word = "IS NOT DISTINCT FROM" if negated else "is distinct from"
                return f"{inner(left)} {word} {inner(right)}"
            case Membership(operand, items, negated):
                listed = ",".join(map(inner, items))
                return f"{inner(operand)} {'NOT IN' if negated else 'in'}{gap}({listed})"
            case Range(operand, low, high, negated):
                between = "not between" if negated else "BETWEEN"
                return f"{inner(operand)} {between} {inner(low)} AND {inner(high)}"
            case Pattern(operand, operator, pattern, _, negated):
                no = ("!" if "~" in operator else "NOT ") if negated else ""
                return f"{inner(operand)} {no}{operator} {self.write(pattern)}"
            case NullTest(operand, negated):
                return f"{inner(operand)} IS{gap}{'NOT NULL' if negated else 'null'}"
            case TruthTest(operand, truth, negated):
                return f"{inner(operand)} IS{' NOT' if negated else ''} {truth}"
            case DatePart("extract", field, operand):
                field = self.choose(field, field.upper(), f"'{field}'", f'"{field}"')
                return f"EXTRACT({field} FROM {self.write(operand)})"
            case DatePart(function, field, operand):
                return f"{function}('{field}', {self.write(operand)})"
            case Case(branches, default):
                written = " ".join(
                    f"WHEN {self.write(when)} THEN {self.write(then)}" for when, then in branches
                )
                ending = "" if default is None else f" ELSE {self.write(default)}"
                return f"case {written}{ending} END"
        raise TypeError(type(expression))

    def inner(self, part: Expression) -> str:
        """Write with parentheses around all but the simplest parts."""
        text = self.write(part)
        return text if isinstance(part, Name | Literal) else f"({text})"


@pytest.mark.pitfall(11)
@given(st.data(), predicates)
def test_postgresql_reads_the_same(data: st.DataObject, predicate: Expression) -> None:
    """Random queries in random spellings mean what they say, to us and to the server's grammar."""
    text = Writer(data).write(predicate)
    parsed = parse_query(f"SELECT COUNT(*) FROM t WHERE {text}").where
    assert parsed is not None
    assert replace_parts(parsed, _without_qualifier) == replace_parts(
        predicate, _without_qualifier
    ), text
    _read_as_postgresql(f"SELECT COUNT(*) FROM t WHERE {text}")


def _without_qualifier(part: Expression) -> Expression | None:
    return Name(part.parts[-1:]) if isinstance(part, Name) else None  # a choice of spelling


PIECES = [
    *"select count ( ) * from where and or not in between is null true false as , ; . :: = <> !="
    " < <= > >= - + / % t age published date timestamp cast distinct group by order having limit"
    " offset union with over filter unknown user left join on using like ilike escape case when"
    " then else end extract date_part sum avg asc desc nulls first values any all"
    " array fetch rows only at time zone interval current_date now left lower trim floor || <@"
    " int4range [ ] ~ !~* symmetric greatest mod grouping rollup cube sets right"
    " regexp_like to_char width_bucket '{a}'".split(),
    *("1", ".5", "5.", "1e5", "0x1F", "'x'", "''", "'='", "'it''s'", '"Age"', '""', "E'x'"),
    *(
        "--",
        "--\n",
        "*/",
        "/*",
        "$1",
        "$$",
        "?",
        ":x",
        "[",
        "]",
        "`",
        "\\",
        "\x00",
        "\u00a0",
        "é",
        "\ud800",
    ),
]


@pytest.mark.pitfall(11)
@given(
    st.data(),
    st.sampled_from(CORPUS),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
)
def test_the_mutated_corpus_is_read_or_refused(
    data: st.DataObject, text: str, pieces: list[str]
) -> None:
    """Queries with random pieces in random places: read as the server reads them, or refused."""
    for piece in pieces:
        at, cut = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 3))
        gap = data.draw(st.sampled_from(["", " "]))
        text = text[:at] + gap + piece + gap + text[at + cut :]
    _read_as_postgresql(text)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
def test_any_pieces_are_read_or_refused(text: str) -> None:
    _read_as_postgresql(f"SELECT COUNT(*) FROM {text}")


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for query in (text, f"SELECT COUNT(*) FROM t WHERE {text}"):
        with contextlib.suppress(UnsupportedQueryError):
            parse_query(query)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_asked_is_read_as_by_postgresql(text: str) -> None:
    _read_as_postgresql(text)


OPERANDS = ["a", "(b)", "1", "'x'", "NULL", "TRUE", "DATE '2020-01-31'", "COUNT(*)",
            "INTERVAL '1 day'", "CURRENT_DATE", "upper(a)", "greatest(a, 1)", "mod(a, 2)",
            "date(a)", "(SELECT COUNT(*) FROM t)"]  # fmt: skip
PREFIXES = ["", "", "", "NOT", "-", "+", "NOT NOT", "- -"]
SUFFIXES = [
    "", "", "", "IS NULL", "IS NOT TRUE", "IS UNKNOWN", "IN (1, a)", "NOT IN (1)", "LIKE 'x'",
    "NOT ILIKE 'x' ESCAPE '!'", "BETWEEN a AND 2", "NOT BETWEEN 1 AND - b",
    "BETWEEN b AT TIME ZONE 'UTC' AND 2", "= ANY (ARRAY[1, a])",
    "<> ALL (ARRAY['x'])", "LIKE ANY (ARRAY['x', 'y'])", "= ANY ('{1,\"2 \"}')", "~ 'x'", "!~* 'x'",
    "BETWEEN SYMMETRIC 2 AND 1", "::numeric(8, 2)", "<@ int4range(1, 2)", "AT TIME ZONE 'UTC'",
    "::text",
]  # fmt: skip
INFIXES = ["AND", "OR", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", *COMPARISONS, *"+-*/%", "||"]


def ungrouped(operands: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Operators as they come, so that only precedence groups them."""
    one = st.tuples(st.sampled_from(PREFIXES), operands, st.sampled_from(SUFFIXES)).map(" ".join)
    return st.lists(st.tuples(one, st.sampled_from(INFIXES)), min_size=1, max_size=4).map(
        lambda pairs: " ".join(f"{part} {infix}" for part, infix in pairs[:-1]) + f" {pairs[-1][0]}"
    )


@pytest.mark.pitfall(11)
@given(
    st.recursive(
        ungrouped(st.sampled_from(OPERANDS)),
        lambda inner: ungrouped(st.sampled_from(OPERANDS) | inner.map("({})".format)),
        max_leaves=6,
    )
)
def test_operators_bind_as_in_postgresql(text: str) -> None:
    """Operators without parentheses: the server's own grammar groups them as we do."""
    _read_as_postgresql(f"SELECT COUNT(*) FROM t HAVING {text}")


def _read_as_postgresql(text: str) -> None:
    """Whatever is accepted, the server's own grammar reads, and reads alike."""
    try:
        parsed = parse_query(text)
    except UnsupportedQueryError:
        return
    pytest.importorskip("pglast", reason="needs pglast, PostgreSQL's grammar")
    from tests.rewrite.postgres_reading import NotACountQueryError, canonical, pglast, read

    try:
        theirs = read(text)
    except pglast.parser.ParseError:
        pytest.fail(f"PostgreSQL does not read it: {text}")
    except NotACountQueryError:
        pytest.fail(f"PostgreSQL reads something else: {text}")
    assert canonical(parsed) == canonical(theirs), text
