"""Checks names of publications, columns and roles, and reads what a column is about from its name.

Names of columns are English or German. The last word decides: `patient_age` is an age, and
`age_at_diagnosis` is one, too. Words before it only say whose it is, so that a person's word counts
at the end, or before a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from kanon_db.declaration import MAX_NAME_BYTES, TEXT, ParameterType
from kanon_db.errors import InvalidNameError

_LONGEST_SUFFIX: Final = "_qit"

HIDING: Final = (
    r"[\u0001-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u2064\u2066-\u206f\ufeff]"
)
"""Control characters, those that turn text around, and those that do not show."""

_HIDING: Final = re.compile(HIDING)


def is_plain(name: str) -> bool:
    """Tell whether a name shows all its characters, as ``kanon.is_plain()`` does."""
    return _HIDING.search(name) is None


def require_plain(what: str, name: str) -> None:
    """Refuse a name that does not show what it is, for whatever has a name."""
    if not is_plain(name):
        raise InvalidNameError(
            f"{what} has control characters in its name, or characters that turn text around",
            detail=f"name {json.dumps(name)}",
            hint="give it another name",
        )


def _read_publication_name(value: Any, parameter: str) -> str:
    """Read a publication's name, to which the suffixes of its relations can be added.

    Other names, such as empty or too long ones, raise `InvalidNameError`.
    """
    name: str = TEXT.read(value, parameter)
    limit = MAX_NAME_BYTES - len(_LONGEST_SUFFIX)
    if not name:
        raise InvalidNameError("a publication needs a name", hint="give a name like census_b")
    if "\0" in name:
        raise InvalidNameError("a publication's name contains a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InvalidNameError("a publication's name contains a lone surrogate, half a character")
    require_plain("a publication", name)
    if (n_bytes := len(name.encode())) > limit:
        raise InvalidNameError(
            "a publication's name is too long",
            detail=f"it has {n_bytes} bytes; {limit} are allowed, since the names of its tables"
            f" end in {_LONGEST_SUFFIX}, and PostgreSQL names have at most {MAX_NAME_BYTES} bytes",
            hint="choose a shorter name",
        )
    return name


PUBLICATION: Final[ParameterType] = replace(TEXT, read=_read_publication_name)
"""The type of a parameter that names a new publication."""


def free_column_name(wanted: str, taken: Iterable[str]) -> str:
    """Return `wanted` or, if it is taken, ``kanon_<wanted>`` (with underscores added if needed).

    A source may well have its own column called ``weight`` or ``count``.
    """
    names = set(taken)
    candidate = wanted if wanted not in names else f"kanon_{wanted}"
    while candidate in names:
        candidate += "_"
    return candidate


Topic = Literal["contact", "name", "number", "person", "known", "sensitive", "technical", ""]
Subject = Literal["person", "thing", ""]


class NameMeaning(NamedTuple):
    """What a column's name says."""

    # `contact` names a person, or leads to them; `name` is one of what is not known.
    topic: Topic
    subject: Subject = ""  # Of a number, whose it is
    few: Topic = ""  # Of a number, what few values would mean: the number of a ward is known


_PERSONS: Final = frozenset(
    "patient patients patienten pat person persons people case cases fall customer cust client"
    " klient klienten kunde kunden student students stud schueler pupil pupils learner member"
    " members mitglied mitglieds user subject subj participant teilnehmer proband probanden"
    " respondent resp befragten employee emp empl mitarbeiter personal staff worker beneficiary"
    " enrollee subscriber applicant inmate donor resident tenant voter citizen child kind kinds"
    " mother father parent guardian spouse household hh haushalt haushalts family familien study"
    " studien record individual insured versicherten versicherter infant victim offender".split()
)
_KEYS: Final = frozenset(
    "id ids nr no number nummer key uid uuid guid kennung kennziffer schluessel pseudonym"
    " identifier serial reference ref mrn pid num index".split()
)
_OF_PERSONS: Final = frozenset({"mrn", "pid", "pseudonym"})
_NAMES: Final = frozenset({"name", "names", "namen"})
_NAMING: Final = frozenset(
    "first last full middle given family maiden sur fore nick user birth legal preferred vor nach"
    " ruf contact".split()
)
_CONTACTS: Final = frozenset(
    "fax iban imei ip login mail mails email phone telephone telefon tel mobile handy mobil address"
    " adresse anschrift street strasse hausnummer haus house nhs nin passport photo picture"
    " signature ssn socialsecurity url username surname lastname firstname fullname forename"
    " vorname nachname familienname geburtsname license licence plate kennzeichen account konto"
    " latitude longitude lat lon lng gps geolocation geopoint coordinates device sim imsi mac card"
    " tax steuer".split()
)
_NO_CONTACT: Final = frozenset(
    "type status flag yn consent opt optin verified valid provided available domain kind count"
    " preference".split()
)
_PREPOSITIONS: Final = frozenset(
    "of at for per in by with as from since to bei am pro im seit von der des".split()
)
_KNOWN: Final = frozenset(
    "age aged agep alter alt old sex gender geschlecht anrede salutation dob born yob geboren geb"
    " zip plz ort wohnort geburtsort stadt city town village dorf land state staat statefip puma"
    " place location residence live wohnen area hometown race tribe schl educ abschluss degree"
    " school schule schul schulklasse klasse class campus major mar marst married relation"
    " relationship familienstand zivilstand occ occp job work role position title beruf department"
    " abteilung station ward unit room bed zimmer clinic klinik hospital krankenhaus facility site"
    " office store branch team hours height groesse weight gewicht kids kinder child children grade"
    " size level year jahrgang".split()
)
_KNOWN_STEMS: Final = (
    "birth", "geburt", "gebjahr", "postcode", "postal", "postleit", "countr", "county", "region",
    "nation", "citizen", "staatsang", "bundesland", "gemeinde", "municip", "district", "bezirk",
    "province", "kanton", "migration", "ethnic", "educat", "bildung", "schulab", "universit",
    "college", "marital", "occupation", "profession", "employer", "industr", "branche", "language",
    "sprache", "haushaltsgr",
)  # fmt: skip
_VAGUE: Final = frozenset(
    "grade size level year class place title role live work unit bed child".split()
)
"""Known words that follow from what stands before them, where that says something."""

_SENSITIVE: Final = frozenset(
    "dx icd drg hiv aids sick ill condition drug drugs dose dosage bmi bp hba lab result results"
    " finding health hlth genhlth stage wage wages pay salary lohn bonus income inctot incwage"
    " pincp wagp ftotinc hhincome cost costs kosten amount debt loan credit rent price score gpa"
    " grade note noten mark marks rating appraisal vote party partei union crime charge charges"
    " claim test kasse versicherung payer lunch needs absences leave cancer".split()
)
_SENSITIVE_STEMS: Final = (
    "diagnos", "disease", "illness", "krank", "symptom", "comorbid", "allerg", "tumor", "tumour",
    "diabet", "glucose", "cholest", "blood", "systol", "diastol", "pressure", "pulse", "heart",
    "pregnan", "schwanger", "alcohol", "alkohol", "smok", "rauch", "tobacco", "depress", "anxiety",
    "mental", "psych", "vaccin", "impf", "treatment", "therap", "medica", "medika", "surgery",
    "procedure", "observation", "measurement", "befund", "outcome", "disposition", "genetic",
    "suicide", "disab", "behinder", "pflegegrad", "earning", "gehalt", "einkommen", "balance",
    "insurance", "religio", "konfession", "politic", "orientation", "sexual", "affairs", "convict",
    "arrest", "offence", "offense", "satisf", "zufried", "performance", "attendance", "termination",
)  # fmt: skip
_TECHNICAL: Final = frozenset(
    "agent event instrument instance complete redcap wt perwt pweight psu strata stratum version"
    " concept".split()
)
_SKIPPED: Final = frozenset(
    "code codes cd type category cat group status value values text display coding quantity source"
    " raw final total primary main current level number what is your you are do the a an have been"
    " please enter how which where many any ihr ihre sie wie".split()
)
"""Words that say nothing of their own, so that those before them decide."""

_SUFFIXES: Final = (
    "nummer", "nr", "alter", "datum", "name", "strasse", "jahr", "note", "lohn", "befund", "text",
    "kasse", "klasse", "land", "beruf", "abschluss", "groesse", "gewicht", "adresse", "kosten",
)  # fmt: skip
"""Last parts of compounds, whatever stands before them."""

_ASCII: Final = {0xE4: "ae", 0xF6: "oe", 0xFC: "ue", 0xDF: "ss", 0xC4: "Ae", 0xD6: "Oe", 0xDC: "Ue"}
"""German letters, by their numbers."""
_CAMEL: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words_of(column: str) -> list[str]:
    """Return the words that a column's name is made of, in lower case."""
    plain = column.translate(_ASCII)
    words = (word.lower() for word in _CAMEL.findall(plain))
    return [part for word in words for part in _split_word(word)]


@lru_cache(maxsize=4096)
def _split_word(word: str) -> tuple[str, ...]:
    """Divide a word that is several: all known ones, or one before a known last part."""
    if _is_word(word):
        return (word,)
    for at in range(len(word) - 2, 1, -1):
        if _is_word(word[at:]) and _is_word(word[:at]):
            return word[:at], word[at:]
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) >= len(suffix) + 3:
            return word[: -len(suffix)], suffix
    return (word,)


def _is_word(word: str) -> bool:
    return any(
        word in words for words in (_PERSONS, _KEYS, _NAMES, _CONTACTS, _KNOWN, _SENSITIVE)
    ) or word in ("device", "code", "date", "datum", "record", *_NAMING)


def read_name(column: str) -> NameMeaning:
    """Say what a column is about, by its name."""
    return _read(words_of(column))


def _read(words: Sequence[str]) -> NameMeaning:
    """Read the words before a preposition; those after it where these say nothing."""
    for at, word in enumerate(words):
        if word in _PREPOSITIONS:
            before, after = _read_plain(words[:at]), _read(words[at + 1 :])
            is_whole = before.topic not in ("", "name", "number", "person")
            is_whole = is_whole and not (set(words[:at]) & (_KEYS | _NAMES))
            return before if is_whole or not after.topic else after
    return _read_plain(words)


def _read_plain(words: Sequence[str]) -> NameMeaning:
    """Read a name from its last word on."""
    vague: Topic = ""
    for at in range(len(words) - 1, -1, -1):
        word, before = words[at], words[:at]
        is_last = at == len(words) - 1
        if word in _OF_PERSONS:
            return NameMeaning("number", "person")
        if word in _KEYS and (is_last or word not in ("no", "num", "number", "nr", "index")):
            return _read_number(before)
        if word in _NAMES:
            return _read_named(before)
        if is_last and word in _PERSONS and not (before and word in _KNOWN):
            return NameMeaning("person")
        topic = _topic(word)
        if topic == "contact" and not _NO_CONTACT.isdisjoint(words[at + 1 :]):
            return NameMeaning("technical")
        if word in _VAGUE:
            vague = vague or topic
        elif topic and not (word in _SKIPPED and before):
            return NameMeaning(topic)
    return NameMeaning(vague)


def _topic(word: str) -> Topic:
    if word in _CONTACTS:
        return "contact"
    if word in _TECHNICAL:
        return "technical"
    if word in _SENSITIVE:
        return "sensitive"
    if word in _KNOWN:
        return "known"
    of_stems: Mapping[Topic, Iterable[str]] = {"sensitive": _SENSITIVE_STEMS, "known": _KNOWN_STEMS}
    for topic, stems in of_stems.items():
        if any(word.startswith(stem) or (len(stem) > 4 and stem in word) for stem in stems):
            return topic
    return ""


def _read_number(before: Sequence[str]) -> NameMeaning:
    """Read what a number is of: of a person, where nothing else is said."""
    own = [word for word in before if word not in _SKIPPED and word != "concept"]
    if not own or own[-1] in _PERSONS:
        return NameMeaning("number", "person")
    topic = _read_plain(own).topic
    if topic == "contact":
        return NameMeaning("contact")
    return NameMeaning("number", "thing", topic if topic in ("known", "sensitive") else "")


def _read_named(before: Sequence[str]) -> NameMeaning:
    """Read what a name is of: a person's, or a ward's."""
    own = [word for word in before if word not in _SKIPPED]
    if not own or own[-1] in _NAMING or own[-1] in _PERSONS:
        return NameMeaning("contact")
    meaning = _read_plain(own)
    return meaning if meaning.topic in ("known", "sensitive", "technical") else NameMeaning("name")


def looks_identifying(column: str) -> bool:
    """Tell whether a column's name is one that columns of names, numbers or addresses have."""
    return read_name(column).topic in ("contact", "name")


def looks_like_entity(column: str) -> bool:
    """Tell whether a column's name is one that columns have which say whom a record is about."""
    meaning = read_name(column)
    return meaning.topic == "person" or meaning.subject == "person"
