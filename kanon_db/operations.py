"""Declares every operation once; SQL functions, Python methods and commands are derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import kanon_db
from kanon_db.advice.publication_candidates import PROTECTIONS, PURPOSES
from kanon_db.answers import QUESTIONS
from kanon_db.catalog.attributes import KEEP, read_attributes
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import (
    EVERYBODY,
    NAMES,
    RELATION,
    SECONDS,
    SHARE,
    TEXT,
    Operation,
    choice,
    columns,
    json_object,
    numbers,
    parameter,
    value,
    whole,
    wholes,
)
from kanon_db.models.request import ClassifyAllRequest, ClassifyRequest
from kanon_db.publications import KINDS
from kanon_db.publications.publish_request import ACCEPTED
from kanon_db.publications.suppressed.request import PatternsRequest
from kanon_db.session import Session


@dataclass(frozen=True, kw_only=True)
class NoParameters:
    """Parameters of an operation that has none."""


@dataclass(frozen=True, kw_only=True)
class RegisterRequest:
    """Parameters of `register_source`."""

    source: str = parameter(
        RELATION,
        "A table, partitioned table, foreign table, view or materialized view, such as"
        " 'public.census'.",
        is_positional=True,
    )
    quasi_identifiers: tuple[str, ...] = parameter(
        NAMES, "Columns that others may know about a person."
    )
    sensitive: str | None = parameter(TEXT, "Column to protect.", default=None, metavar="NAME")
    identifiers: tuple[str, ...] = parameter(NAMES, "Columns never to be published.", default=())
    attributes: Mapping[str, Any] | None = parameter(
        json_object(read_attributes, is_exact=False),
        "Kinds, bounds and weights of quasi-identifiers, and how they are coarsened, such as"
        ' \'{"age": {"lower": 0, "upper": 120, "weight": 0.4, "round": 5, "top": 90}}\'.',
        default=None,
    )
    insensitive: tuple[str, ...] = parameter(
        NAMES,
        "Columns that rows are published with as they are; a column without a role is not"
        " published.",
        default=(),
    )
    entity: str | None = parameter(
        TEXT,
        "Column that says whom a record is about, where several can be about the same person, or"
        " for refresh; never published.",
        default=None, metavar="NAME",
    )  # fmt: skip
    arrival: str | None = parameter(
        TEXT,
        "Column that says when a record came, such as a time or a running number, for refresh.",
        default=None, metavar="NAME",
    )  # fmt: skip
    also_sensitive: tuple[str, ...] = parameter(
        NAMES, "Further columns to protect, each like the sensitive one.", default=()
    )
    keep: str | None = parameter(
        KEEP,
        "Which one record of each entity is published: 'latest by COLUMN', 'first by COLUMN' or"
        " 'random'; then what of all its records stands in it, as ', max of cost' (min, sum, mean,"
        " count).",
        default=None, metavar="RULE",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NameRequest:
    """The name of a publication."""

    name: str = parameter(TEXT, "The publication.", is_positional=True)


@dataclass(frozen=True, kw_only=True)
class CheckReleaseRequest:
    """Parameters of `check_release`."""

    source: str = parameter(
        RELATION, "The registered relation that it was made from.", is_positional=True
    )
    publication: str = parameter(
        TEXT, "A publication of it, or a draft: published with readers => '{}'.",
        is_positional=True, metavar="NAME",
    )  # fmt: skip
    readers: tuple[str, ...] | None = parameter(
        NAMES, "Roles that are to read it; those that may now, or kanon_analyst, by default.",
        default=None,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GrantRequest:
    """Parameters of `grant_publication`."""

    name: str = parameter(TEXT, "The publication.", is_positional=True)
    readers: tuple[str, ...] = parameter(NAMES, "Roles that may read it from now on, too.")
    accept: Mapping[str, str] = parameter(
        ACCEPTED,
        "Known risks that are accepted, each with a reason: combined_releases.",
        default="{}",
    )


@dataclass(frozen=True, kw_only=True)
class RefreshRequest:
    """Parameters of `refresh`."""

    publication: str = parameter(TEXT, "The publication.", is_positional=True, metavar="NAME")
    accept: Mapping[str, str] = parameter(
        ACCEPTED,
        "Known risks that are accepted, each with a reason, in addition to those accepted before.",
        default="{}",
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """Parameters of `evaluate_counts`."""

    name: str = parameter(TEXT, "The publication, of the kind buckets.", is_positional=True)
    queries: int = parameter(whole(most=100_000), "How many queries.", default=1000)
    dimensionality: tuple[int, ...] | None = parameter(
        wholes(),
        "How many quasi-identifiers may have a condition: each query draws one of these numbers,"
        " any number by default.",
        default=None,
    )
    selectivity: tuple[float, ...] | None = parameter(
        numbers(most=1),
        "Expected shares of matching records: each query draws one of these, by default one of"
        " 0.01, 0.05 and 0.1.",
        default=None,
    )
    seed: int | None = parameter(
        whole(least=0, sql="bigint"), "The same seed draws the same queries.", default=None
    )


@dataclass(frozen=True, kw_only=True)
class DrawRequest:
    """Parameters of `draw`."""

    name: str = parameter(TEXT, "The publication.", is_positional=True)
    seed: int | None = parameter(
        whole(least=0, sql="bigint"),
        "The same seed draws the same records of a publication; without one, others each time.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class SourceRequest:
    """A registered source."""

    source: str = parameter(RELATION, "A registered relation.", is_positional=True)


@dataclass(frozen=True, kw_only=True)
class CheckRelationRequest:
    """Parameters of `check_relation`."""

    relation: str = parameter(RELATION, "Any table or view.", is_positional=True)
    quasi_identifiers: tuple[str, ...] = parameter(
        NAMES, "Columns that others may know about a person."
    )
    sensitive: tuple[str, ...] = parameter(NAMES, "Columns to protect.", default=())
    entity: str | None = parameter(
        TEXT, "Column that says whom a row is about: people are counted, not their rows.",
        default=None, metavar="NAME",
    )  # fmt: skip
    survey_weight: str | None = parameter(
        TEXT, "Column that says for how many people of the population a row stands.",
        default=None, metavar="NAME",
    )  # fmt: skip
    k: int | None = parameter(whole(), "Least size of a class.", default=None)
    l: int | None = parameter(
        whole(),
        "Least number of values in a class, none of them with more than 1/l of it.",
        default=None,
    )
    t: Fraction | None = parameter(
        SHARE, "Greatest distance of a class's values from those of all.", default=None
    )


@dataclass(frozen=True, kw_only=True)
class InspectRequest:
    """Parameters of `inspect_relation`."""

    source: str = parameter(
        RELATION, "A table or view, which need not be registered.", is_positional=True
    )


@dataclass(frozen=True, kw_only=True)
class RecommendRequest:
    """Parameters of `recommend`."""

    source: str = parameter(RELATION, "A registered relation.", is_positional=True)
    purpose: str = parameter(
        choice("purpose", **PURPOSES), "What analysts will do with it.", default="counts"
    )
    protection: str = parameter(
        choice("protection", **{name: one.sentence for name, one in PROTECTIONS.items()}),
        "How much people are to be protected.",
        default="standard",
    )
    time_limit: float = parameter(
        SECONDS,
        "Seconds, which the candidates share, and after which it ends with what was tried.",
        default=60.0,
    )


_CLASSIFIED: Final = {
    "label": "text", "agreement": "double precision", "logits": "jsonb", "answers_left": "bigint",
}  # fmt: skip


def version(_session: Session) -> str:
    """Return the version of the package that the server runs."""
    return kanon_db.__version__


_ROWS_OF_A_NAME: Final[dict[str, Any]] = {
    "request": NameRequest,
    "audience": EVERYBODY,
    "is_many": True,
}

# A table: each operation's name, what it does, where its code is, and what it returns.
# fmt: off
_OTHERS: Final = (
    Operation(
        "version", "version of kanon_db",
        "kanon_db.operations:version", value("text"),
        request=NoParameters, audience=EVERYBODY, is_stable=True,
    ),
    Operation(
        "register_source",
        "describe microdata by the roles of its columns; returns its id",
        "kanon_db.catalog.sources:register_source", value("bigint"),
        request=RegisterRequest, command=("register",),
        details="A source that is registered again gets the new description. If it has"
        " publications, only columns that were added at its end can get a role, as identifiers.",
    ),
    Operation(
        "inspect_relation",
        "look at the columns of a table before it is registered, and guess their roles",
        "kanon_db.advice.inspection:inspect_relation",
        columns(
            name="text", type="text", role="text", reason="text", distinct_values="bigint",
            missing="double precision", once="double precision", notes="text", sql="text",
            command="text",
        ),
        request=InspectRequest, is_many=True, command=("inspect",),
        details="Roles are guesses, from names of columns and from how values recur: check them."
        " The first row is about the relation, with what registers it as guessed. Of values, it"
        " shows only well-known codes for what is missing, such as 99.",
    ),
    Operation(
        "unicity",
        "which columns, and combinations of columns, tell records apart, and how many",
        "kanon_db.advice.identifying_columns:unicity",
        columns(
            columns="text[]", records="bigint", share="double precision", meaning="text",
        ),
        request=SourceRequest, is_many=True, command=("unicity",),
        details="All quasi-identifiers together, each published column, and the five pairs and five"
        " combinations of three quasi-identifiers that tell most records apart.",
    ),
    Operation(
        "recommend",
        "try what could be published of a source, and set it side by side, the best first",
        "kanon_db.advice.recommendation:recommend",
        columns(
            place="integer", candidate="text", guarantee="text", certain_people="bigint",
            count_error="double precision", loss="double precision", loss_by_column="jsonb",
            attack_rate="double precision", attacks="jsonb", seconds="double precision",
            tried_on="bigint", records="bigint", objection="text", sql="text", command="text",
        ),
        request=RecommendRequest, is_many=True, command=("recommend",),
        details="Nothing is published. Of a large table, a random sample is tried (tried_on).",
    ),
    Operation(
        "suppression_patterns",
        "the pattern vectors that patterns or rules allow, in the order in which they are tried",
        "kanon_db.publications.suppressed.methods:suppression_patterns",
        columns(position="integer", pattern="text", suppressed="text[]", cost="double precision"),
        request=PatternsRequest, is_many=True, is_stable=True, command=("patterns",),
    ),
    Operation(
        "verify", "check a publication, using only its published relations",
        "kanon_db.publications.examination:verify",
        columns(check="text", bound="text", measured="text", holds="boolean"),
        command=("verify",), **_ROWS_OF_A_NAME,
    ),
    Operation(
        "check_relation",
        "measure k, l, t and the risks of any table or view, and count the classes beyond a bound",
        "kanon_db.publications.examination:check_relation",
        columns(
            measure="text", value="double precision", bound="double precision", classes="bigint",
            records="bigint", holds="boolean",
        ),
        request=CheckRelationRequest, audience=EVERYBODY, is_many=True, is_stable=True,
        command=("check",),
        details="Also of one that another tool made: rows are of one class if the texts of their"
        " cells are equal. It shows counts only, no values, and needs SELECT on the columns. The"
        " command exits with 1 if a bound does not hold.",
    ),
    Operation(
        "metrics", "measure a publication from its published relations",
        "kanon_db.publications.examination:metrics",
        columns(metric="text", value="double precision"),
        command=("metrics",), **_ROWS_OF_A_NAME,
    ),
    Operation(
        "attack",
        "play known attacks against a publication, and compare what they achieve with its bound",
        "kanon_db.publications.examination:attack",
        columns(
            attack="text", bound="double precision", base_rate="double precision",
            rate="double precision", people="bigint",
        ),
        request=NameRequest, is_many=True, command=("attack",),
        details="What was found is kept with the publication, for the one who published.",
    ),
    Operation(
        "evaluate_counts",
        "relative errors of a bucketization's answers to random count queries, against its source",
        "kanon_db.publications.examination:evaluate_counts",
        columns(
            expected_selectivity="double precision", n_queries="bigint", undefined="bigint",
            mean_relative_error="double precision", median_relative_error="double precision",
        ),
        request=EvaluateRequest, is_many=True, command=("evaluate",),
    ),
    Operation(
        "check_release",
        "measure what a publication would tell together with earlier releases of the same people",
        "kanon_db.publications.releases.release_check:check_release",
        columns(
            check="text", result="text", releases="text", people="bigint", certain="bigint",
            share="double precision", bound="double precision", holds="boolean",
        ),
        request=CheckReleaseRequest, is_many=True, command=("check-release",),
        details="Nothing is published or granted. No row: it may be granted without a word.",
    ),
    Operation(
        "grant_publication",
        "let more roles read a publication, under the rules for publishing it to them",
        "kanon_db.publications.releases.release_check:grant_publication", (),
        request=GrantRequest, command=("grant",),
    ),
    Operation(
        "refresh",
        "publish the people that came since, as a batch of their own under the same guarantee",
        "kanon_db.publications.refresh:refresh",
        columns(
            publication_id="bigint", name="text", guarantee="text", records="bigint",
            added="bigint", waiting="bigint", missing="text", metrics="jsonb",
            seconds="double precision", withdrawn="bigint", left_out="bigint", corrected="bigint",
            waits="jsonb",
        ),
        request=RefreshRequest, command=("refresh",),
        row_class="kanon_db.publications.refresh:Refreshed",
        details="The source must be registered with the column that says when a record came"
        " (arrival), or whom it is about (entity). The row says what waits, why, and since when:"
        " too few people to keep the guarantee, and further, corrected and deleted records of"
        " people who are published. Buckets of the assignment m_invariant are drawn anew, without"
        " those who left.",
    ),
    Operation(
        "drop_publication", "drop a publication: its relations and its entry in the catalog",
        "kanon_db.publications.lifecycle:drop_publication", (),
        request=NameRequest, command=("drop",),
    ),
    Operation(
        "draw", "records drawn from a publication: of buckets, each with one sensitive value",
        "kanon_db.publications.draws:draw", columns(record="jsonb"),
        request=DrawRequest, audience=EVERYBODY, is_many=True, is_stable=True, command=("draw",),
        details="A draw is made of the published relations and of chance alone, so it tells nothing"
        " that the publication does not tell. In buckets, each value is drawn exactly as often as"
        " the bucket has it. Prints CSV.",
    ),
    *QUESTIONS,
    Operation(
        "classify", "ask a model about a row: its label, and the share of members that agree",
        "kanon_db.models.asking:classify", columns(**_CLASSIFIED),
        request=ClassifyRequest, audience=EVERYBODY, command=("classify",),
        row_class="kanon_db.models.asking:Classified",
        details="Where the model has a budget, the answer is counted, whatever becomes of the"
        " transaction.",
    ),
    Operation(
        "classify_all", "ask a model about many rows: all are answered, or none",
        "kanon_db.models.asking:classify_all",
        columns(position="bigint", **_CLASSIFIED),
        request=ClassifyAllRequest, audience=EVERYBODY, is_many=True,
        command=("classify-all",),
    ),
)
# fmt: on
_OTHERS_BY_NAME: Final = {operation.name: operation for operation in _OTHERS}


def operations() -> dict[str, Operation]:
    """Return all operations by name, including those that publish the registered kinds."""
    publishing = [kind.operation for kind in KINDS.values()]
    return _OTHERS_BY_NAME | {operation.name: operation for operation in publishing}


def operation_named(name: str) -> Operation:
    """Return an operation; only one that publishes imports the parameters of its kind."""
    return _OTHERS_BY_NAME.get(name) or operations()[name]
