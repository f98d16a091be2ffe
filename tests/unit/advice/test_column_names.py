"""Roles are guessed from names as people give them to columns.

The words that guess them were chosen on half of the names; the other half was written before.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import pytest

from kanon_db.advice.inspection import ColumnProfile, guess_role
from kanon_db.catalog.names import looks_identifying, looks_like_entity, words_of

N = 1000
PROFILES = {
    "key": {"distinct": N, "filled": N, "alone": N},
    "recurring": {"distinct": N // 3, "filled": N, "alone": 10},
    "few": {"distinct": 9, "filled": N},
    "number": {"distinct": 60, "filled": N, "alone": 5, "type_name": "numeric"},
    "date": {"distinct": 300, "filled": N, "alone": 50, "type_name": "date", "is_time": True},
    "texts": {"distinct": 960, "filled": N, "alone": 940, "length": 14.0},
    "long": {"distinct": 990, "filled": N, "alone": 980, "length": 150.0},
}  # fmt: skip
"""What columns hold, as `inspect` counts it."""


class NamedColumn(NamedTuple):
    set: str
    name: str
    values: str
    roles: str  # One, or several that are as good

    def guess(self) -> str:
        given = {"type_name": "text", **PROFILES[self.values]}
        is_text = given["type_name"] == "text"
        return guess_role(ColumnProfile(self.name, is_text=is_text, **given))[0]  # type: ignore[arg-type]


def read_names() -> list[NamedColumn]:
    text = Path(__file__).with_name("column_names.csv").read_text(encoding="utf-8")
    return [NamedColumn(**row) for row in csv.DictReader(text.splitlines())]


@pytest.mark.parametrize("half", ["chosen", "held"])
def test_nine_of_ten_names_are_guessed_right(half: str) -> None:
    names = [one for one in read_names() if one.set == half]
    wrong = [(one, one.guess()) for one in names if one.guess() not in one.roles.split("/")]
    assert len(names) == 200
    assert len(wrong) <= 20, wrong


@pytest.mark.parametrize("role", ["entity", "identifier"])
def test_nothing_is_taken_for_a_person_or_their_number(role: str) -> None:
    """An age that is taken for the patient is left out, and zip codes count as people."""
    wrong = [one for one in read_names() if one.guess() == role and role not in one.roles]
    assert wrong == []


def test_words_of_a_name() -> None:
    assert words_of("group_hh/PatientNo") == ["group", "hh", "patient", "no"]
    assert words_of("Straße") == ["strasse"]
    assert words_of("caseid") == ["case", "id"]


def test_names_that_registration_warns_of() -> None:
    names = ("lastName", "e_mail", "home-phone", "weekly_hours", "email_status", "ward_name")
    assert [looks_identifying(name) for name in names] == [True, True, True, False, False, False]
    whom = ("patient", "PatientNo", "case_id", "paid", "age", "patient_age", "ward_id")
    assert [looks_like_entity(name) for name in whom] == [True] * 3 + [False] * 4
