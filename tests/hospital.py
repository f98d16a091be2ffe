"""A made-up hospital: 20,000 stays of 11,000 patients in a year, and the three quarters after it.

The same stays at every call. Patients who come often tend to come for the same reason.
"""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.integration.parties import Connection, create_table, fetch

N_STAYS: Final = 20_000
N_PATIENTS: Final = 11_000
N_DIAGNOSES: Final = 300

COLUMNS: Final = (
    "stay int PRIMARY KEY, patient int NOT NULL, admission date NOT NULL, age int NOT NULL,"
    " sex text NOT NULL, postcode text NOT NULL, diagnosis text NOT NULL, cost numeric NOT NULL,"
    " insurance text NOT NULL"
)
ROLES: Final[Mapping[str, Any]] = {
    "quasi_identifiers": ["age", "sex", "postcode", "insurance"],
    "sensitive": "diagnosis",
    "identifiers": ["stay"],
    "entity": "patient",
}
"""How `register_source` may describe a table of stays: of each patient, there are several."""

_FIRST_DAY: Final = date(2024, 1, 1)
_QUARTERS: Final = tuple(date(2025, month, 1) for month in (1, 4, 7, 10))

_DIAGNOSES: Final = tuple(f"{'ACEFGIJKMN'[i % 10]}{i // 10:02d}" for i in range(N_DIAGNOSES))
_WEIGHTS: Final = tuple(1 / (i + 4) for i in range(N_DIAGNOSES))
"""The most frequent diagnosis is that of 6 % of the stays, the least frequent that of 0.1 %."""

_POSTCODES: Final = tuple(f"10{i:03d}" for i in range(0, 240, 8))
_INSURANCES: Final = ("public A", "public B", "public C", "private", "none")


class Stay(NamedTuple):
    """One stay of a patient."""

    stay: int
    patient: int
    admission: date
    age: int  # at the admission, in years
    sex: str
    postcode: str
    diagnosis: str
    cost: int  # rounded to hundreds
    insurance: str

    @property
    def quarter(self) -> str:
        """The quarter of the admission, such as 2024Q3."""
        return f"{self.admission.year}Q{(self.admission.month + 2) // 3}"


@dataclass(frozen=True)
class Changes:
    """What happens to the table in a quarter."""

    again: Sequence[Stay]  # new stays of patients who have been there before
    new: Sequence[Stay]  # stays of new patients
    corrected: Sequence[Stay]  # stays that are in the table with another value
    deleted: Sequence[int]  # the numbers of stays


@dataclass(frozen=True)
class _Patient:
    number: int
    born: date
    sex: str
    postcode: str
    diagnosis: str
    insurance: str


@dataclass
class Hospital:
    """The table of stays, from quarter to quarter."""

    stays: dict[int, Stay] = field(default_factory=dict)  # as they are now, by their numbers
    _random: random.Random = field(default_factory=lambda: random.Random(20_000))  # noqa: S311
    _patients: dict[int, _Patient] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _quarter: int = 0

    def __post_init__(self) -> None:
        days = (_QUARTERS[0] - _FIRST_DAY).days
        whose = [self._new_patient() for _ in range(N_PATIENTS)]
        # Some come again and again: the number of further stays is skewed.
        weights = list(itertools.accumulate(1 / (1 + i % 40) for i in range(N_PATIENTS)))
        whose += self._random.choices(whose, cum_weights=weights, k=N_STAYS - N_PATIENTS)
        self._random.shuffle(whose)
        admissions = sorted(self._random.randrange(days) for _ in whose)
        for patient, day in zip(whose, admissions, strict=True):
            self._add(self._stay(patient, _FIRST_DAY + timedelta(days=day)))

    def next_quarter(
        self, n_again: int = 1_700, n_new: int = 2_400, n_corrected: int = 29, n_deleted: int = 11
    ) -> Changes:
        """Change the table as in the next of three quarters of 2025."""
        first, end = _QUARTERS[self._quarter : self._quarter + 2]
        self._quarter += 1
        known = list(self._patients.values())
        before = sorted(self.stays)
        deleted = self._random.sample(before, n_deleted)
        for number in deleted:
            del self.stays[number]
        corrected = [
            self._corrected(self.stays[number])
            for number in self._random.sample(sorted(self.stays), n_corrected)
        ]
        again = self._random.choices(known, k=n_again)
        newcomers = [self._new_patient() for _ in range(n_new)]
        came = [(patient, True) for patient in again] + [(one, False) for one in newcomers]
        self._random.shuffle(came)
        days = sorted(self._random.randrange((end - first).days) for _ in came)
        lists: dict[bool, list[Stay]] = {True: [], False: []}
        for (patient, is_known), day in zip(came, days, strict=True):
            lists[is_known].append(self._add(self._stay(patient, first + timedelta(days=day))))
        for stay in corrected:
            self.stays[stay.stay] = stay
        return Changes(lists[True], lists[False], corrected, deleted)

    def _new_patient(self) -> _Patient:
        draw = self._random
        means = draw.choices(((35, 18), (68, 14), (2, 2)), (45, 45, 10))[0]
        age = min(draw.gauss(*means), 99)
        patient = _Patient(
            number=100_000 + len(self._patients) * 7,
            born=_FIRST_DAY - timedelta(days=int(max(age, 0) * 365.25) + draw.randrange(365)),
            sex=draw.choices("fmx", (50, 49, 1))[0],
            postcode=draw.choices(_POSTCODES, range(len(_POSTCODES), 0, -1))[0],
            diagnosis=draw.choices(_DIAGNOSES, _WEIGHTS)[0],
            insurance=draw.choices(_INSURANCES, (45, 25, 15, 13, 2))[0],
        )
        self._patients[patient.number] = patient
        return patient

    def _stay(self, patient: _Patient, admission: date) -> Stay:
        draw = self._random
        moved = draw.random() < 0.03
        diagnosis = patient.diagnosis
        if draw.random() < 0.55:
            diagnosis = draw.choices(_DIAGNOSES, _WEIGHTS)[0]
        cost = draw.lognormvariate(7.6 + _DIAGNOSES.index(diagnosis) % 7 / 9, 0.6)
        return Stay(
            stay=next(self._numbers),
            patient=patient.number,
            admission=admission,
            age=int((admission - patient.born).days / 365.25),
            sex=patient.sex,
            postcode=draw.choice(_POSTCODES) if moved else patient.postcode,
            diagnosis=diagnosis,
            cost=max(100, round(cost / 100) * 100),
            insurance=patient.insurance,
        )

    def _add(self, stay: Stay) -> Stay:
        self.stays[stay.stay] = stay
        return stay

    def _corrected(self, stay: Stay) -> Stay:
        """Give a stay another diagnosis, cost or postcode."""
        draw = self._random
        column = draw.choice(("diagnosis", "cost", "postcode"))
        if column == "cost":
            return stay._replace(cost=stay.cost + 100 * draw.randint(1, 30))
        values = _DIAGNOSES if column == "diagnosis" else _POSTCODES
        others = [value for value in values if value != getattr(stay, column)]
        return stay._replace(**{column: draw.choice(others)})


def create(connection: Connection, table: str, stays: Sequence[Stay]) -> None:
    """Create the table of stays."""
    create_table(connection, table, COLUMNS, stays)


def change(connection: Connection, table: str, changes: Changes) -> None:
    """Change the table as a quarter has changed it."""
    fetch(
        connection,
        f"DELETE FROM {table} WHERE stay = ANY ($1::int[])",
        [*changes.deleted, *(stay.stay for stay in changes.corrected)],
    )
    rows = [*changes.corrected, *changes.again, *changes.new]
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def write_file(path: Path, stays: Sequence[Stay]) -> None:
    """Write stays as a spreadsheet in Germany does, with the names of the columns first.

    Semicolons, dates such as 31.12.2024, and costs such as 1.234,50.
    """
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(Stay._fields)
        for stay in stays:
            cost = f"{stay.cost:,.2f}".translate(str.maketrans(",.", ".,"))
            writer.writerow(stay._replace(admission=f"{stay.admission:%d.%m.%Y}", cost=cost))  # type: ignore[arg-type]
