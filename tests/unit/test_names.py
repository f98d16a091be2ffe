"""The rule for names."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from kanon_db.catalog.names import HIDING, is_plain

ROOT = Path(__file__).parents[2]


def test_sql_has_the_same_rule() -> None:
    assert f"name !~ '{HIDING}'" in (ROOT / "sql" / "24_told.sql").read_text()


def test_what_hides() -> None:
    """By Unicode: control characters, ends of lines, what has a direction, or does not show."""
    for code in range(1, 0x10000):
        character = chr(code)
        kind = unicodedata.category(character)
        joins = character in "\u200c\u200d"  # letters, without which some scripts cannot be written
        turns_or_hides = kind == "Cf" and (
            (unicodedata.bidirectional(character) not in ("AN", "AL", "ON") and not joins)
            or character == "\u061c"
        )
        hides = kind in ("Cc", "Zl", "Zp") or turns_or_hides
        assert is_plain(f"a{character}b") is not hides, hex(code)
