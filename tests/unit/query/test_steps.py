"""How statements are laid out."""

from __future__ import annotations

from kanon_db.query.sql import Nested, Select, Steps


def test_one_clause_a_line() -> None:
    steps = Steps()
    steps.add(
        "matching", "What matches.",
        Select({"a": "q.a", "n": "count(*)"}, ["t AS q", "JOIN u ON u.a = q.a"],
               ["q.b > 1", "q.c > 2"], ["1"], "count(*) > 1"),
    )  # fmt: skip
    steps.add("both", "All of it.", Select({"*": "*"}, ["matching"]), Select({"n": "1"}))
    assert steps.write() == (
        "WITH\n"
        "-- What matches.\n"
        "matching AS (\n"
        "  SELECT q.a AS a, count(*) AS n\n"
        "  FROM t AS q\n"
        "  JOIN u ON u.a = q.a\n"
        "  WHERE q.b > 1\n"
        "    AND q.c > 2\n"
        "  GROUP BY 1\n"
        "  HAVING count(*) > 1\n"
        ")\n"
        "-- All of it.\n"
        "SELECT *\n"
        "FROM matching\n"
        "UNION ALL\n"
        "SELECT 1 AS n"
    )


def test_long_lists_take_a_line_for_each_item() -> None:
    names = {f"column_{i}": f"column_{i}" for i in range(9)}
    text = Select(names, ["t"]).write()
    assert text.startswith("SELECT\n  column_0,\n  column_1,\n")
    assert text.endswith("  column_8\nFROM t")


def test_what_is_nested_is_indented_but_never_changed() -> None:
    """A constant or a name may span lines: they stay as they are."""
    inner = Select({"x": "'a\nb'"}, ['"odd\n  name"'])
    text = Select({"x": "x"}, ["t", Nested([inner, inner], "s", "CROSS JOIN LATERAL")]).write()
    assert text == (
        "SELECT x\n"
        "FROM t\n"
        "CROSS JOIN LATERAL (\n"
        "  SELECT 'a\nb' AS x\n"
        '  FROM "odd\n  name"\n'
        "  UNION ALL\n"
        "  SELECT 'a\nb' AS x\n"
        '  FROM "odd\n  name"\n'
        ") AS s"
    )
