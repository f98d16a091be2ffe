"""Publishing generalized rows [OB]: ranges and sets that at least k rows share."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.bucketization.privacy import exact_number
from kanon_db.algorithms.generalization.enforce import enforce
from kanon_db.algorithms.generalization.greedy_search import greedy_search
from kanon_db.algorithms.generalization.initial import initial
from kanon_db.algorithms.generalization.k_member import k_member
from kanon_db.algorithms.generalization.mondrian import mondrian
from kanon_db.algorithms.generalization.optimal import optimal
from kanon_db.algorithms.generalization.recommend import recommend
from kanon_db.algorithms.generalization.refine import refine as lower_loss
from kanon_db.algorithms.generalization.split_carry import split_carry
from kanon_db.algorithms.generalization.suppress import suppress
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.recoding.cells import cells_of_classes
from kanon_db.algorithms.recoding.constraints import Constraint
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.catalog.entries import record_publication
from kanon_db.catalog.sources import open_source
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.generalization import measure
from kanon_db.publications.generalized.constraints import ClassConstraints
from kanon_db.publications.generalized.examine import examine_generalized
from kanon_db.publications.options import MAX_TIME_LIMIT, number_option, parse_options, whole_option
from kanon_db.publications.pipeline import (
    Check,
    Published,
    check_choice,
    require_checks,
    warn_of_other_publications,
)
from kanon_db.publications.rows.recoding import Recoding, start_recoding
from kanon_db.publications.rows.view import SUFFIXES, warn_of_unchanged_columns
from kanon_db.session.protocol import Session
from kanon_db.transfer.snapshot import distinct_values, read_codes

METHODS: Final = (
    "auto", "optimal", "split_carry", "greedy_search", "k_member", "mondrian", "initial",
)  # fmt: skip
OPTIONS: Final = (
    "block_size", "bubble", "carry", "cut", "formulation", "left_over", "s", "time_limit",
)  # fmt: skip
"""Of all methods: those that a method does not know do not concern it."""

_MOST_FOR_K_MEMBER: Final = 50_000  # it compares every record with every other


@dataclass(frozen=True)
class _Options:
    """What the search may do."""

    time_limit: float
    refine: bool
    max_suppressed: Fraction
    given: Mapping[str, Any]

    @classmethod
    def parse(
        cls, text: str | None, max_suppressed: float | Decimal | str, refine: bool
    ) -> _Options:
        given = parse_options(text, OPTIONS)
        share = exact_number(str(max_suppressed))
        if not 0 <= share <= 1:
            raise InvalidParameterError("max_suppressed must lie in [0, 1]")
        return cls(
            time_limit=number_option(given, "time_limit", 60.0, above=0.0, most=MAX_TIME_LIMIT),
            refine=refine,
            max_suppressed=share,
            given=given,
        )

    def choice(self, name: str, choices: Sequence[str]) -> Any:
        """Return an option that is one of several words, the first by default."""
        value = self.given.get(name, choices[0])
        if value not in choices:
            raise InvalidParameterError(
                f"the option {name} is not known", hint=f"choose one of {', '.join(choices)}"
            )
        return value

    def pair(self, name: str) -> tuple[int, int] | None:
        """Return an option that is a list of two whole numbers."""
        value = self.given.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or [type(number) for number in value] != [int, int]:
            raise InvalidParameterError(f"the option {name} must be a list of two whole numbers")
        return value[0], value[1]


@dataclass(frozen=True, eq=False)
class _Found:
    """Classes, and metrics that tell how far from the optimum they can be."""

    method: str
    class_of_record: IntArray
    proof: Mapping[str, float]


def publish_generalized(
    session: Session,
    source: str,
    name: str,
    *,
    k: int,
    method: str = "auto",
    weights: str | None = None,
    options: str | None = None,
    constraints: str | None = None,
    max_suppressed: float | Decimal | str = 0,
    refine: bool = True,
    readers: Sequence[str] | None = None,
    replace: bool = False,
) -> Published:
    """Publish a source with generalized quasi-identifiers, verified before it is visible.

    Parameters
    ----------
    session : Session
        In a transaction of the publishing role, which needs SELECT on the source.
    source : str
        A registered relation, as SQL text.
    name : str
        The publication: materialized view ``<name>``.
    k : int
        Fewest rows that share all generalized quasi-identifiers.
    method : {"auto", "optimal", "split_carry", "greedy_search", "k_member", "mondrian", "initial"}
        How classes are found; ``auto`` chooses, and says why.
    weights : str, optional
        JSON, factor of the loss by quasi-identifier; those that the registration gave otherwise,
        or 1.
    options : str, optional
        JSON. ``time_limit``: seconds for the search, refinement included (60). ``s``, ``carry``,
        ``bubble`` of Split & Carry; ``block_size``, ``left_over`` of Greedy Search; ``cut`` of
        Mondrian; ``formulation`` of the optimum. What another method needs is left unused.
    constraints : str, optional
        JSON, on the sensitive values in each class; see :class:`ClassConstraints`.
    max_suppressed : number or str
        Share of the records that may be left out where that lowers the loss; taken exactly.
    refine : bool
        Lower the loss of the classes found until the time limit, or nothing more is to be won.
    readers : sequence of str, optional
        Roles that may read the publication; ``kanon_analyst`` by default.
    replace : bool
        Replace a publication of this name in the same transaction.

    Returns
    -------
    Published

    Raises
    ------
    IneligibleError
        When no classes at all can satisfy the constraints.
    KanonError
        For everything else that is refused; the transaction must then be rolled back.

    Notes
    -----
    **Source:** [OB]; see the modules of :mod:`kanon_db.algorithms.generalization`. Ranges and sets
    are as tight as the values of the class allow. Rows come in a random order from the operating
    system's cryptographic source.
    """
    started = time.perf_counter()
    check_choice("method", method, METHODS)
    chosen = _Options.parse(options, max_suppressed, refine=refine)
    wanted = None if constraints is None else ClassConstraints.parse(constraints)
    if wanted is not None and wanted.depends_on_frequencies and chosen.max_suppressed:
        raise InvalidParameterError(
            "constraints relative to the table's frequencies go with no suppression",
            detail="readers know the published records only, not those that were left out",
            hint="leave out max_suppressed, or t and theta",
        )
    registered, types = open_source(session, source)
    relation = registered.relation
    if wanted is not None and registered.sensitive is None:
        raise InvalidParameterError(
            "constraints need a sensitive attribute",
            detail=f"{relation} was registered without one",
            hint="register it again with sensitive => …",
        )
    recoding = start_recoding(
        session, registered, types, name, k=k, weights=weights, readers=readers, replace=replace
    )
    microdata, snapshot = recoding.microdata, recoding.snapshot
    constraint = None
    if wanted is not None and registered.sensitive is not None:
        sensitive = distinct_values(snapshot, types[registered.sensitive])
        constraint = wanted.of(sensitive, read_codes(snapshot, [sensitive])[:, 0])
        constraint.check_eligible()
        sensitive.drop()
    found = _search(session, microdata, k, method, chosen, constraint)
    inside = _publish_rows(recoding, found.class_of_record)

    session.step("verifying")
    measured = measure(microdata, found.class_of_record)
    parameters = {
        "k": k,
        "weights": None if weights is None else json.loads(weights, parse_float=str),
        "options": dict(chosen.given),
        "constraints": None if constraints is None else json.loads(constraints, parse_float=str),
        "max_suppressed": str(chosen.max_suppressed),
        "refine": refine,
        "suppressed": measured.n_suppressed,
        "readers": list(recoding.readers),
    }
    examined = examine_generalized(
        session,
        recoding.view,
        parameters,
        records=snapshot.n_records,
        sensitive=registered.sensitive,
    )
    require_checks([*examined.checks, inside])
    warn_of_unchanged_columns(session, recoding.layout)
    warn_of_other_publications(session, relation, recoding.readers)
    guarantee = (
        f"{k}-anonymity: every combination of generalized quasi-identifiers occurs at least {k}"
        " times"
    )
    if wanted is not None:
        guarantee += f", with {wanted} in each"
    if measured.n_suppressed:
        guarantee += f"; {measured.n_suppressed} records are left out"
    metrics = {
        **examined.metrics,
        "gcp": measured.gcp,
        "gcp_ob": measured.ob_gcp,
        "weighted_loss": measured.weighted_loss,
        **{
            f"loss_of_{column}": float(loss)
            for column, loss in zip(
                registered.quasi_identifiers, measured.loss_by_attribute, strict=True
            )
        },
        **found.proof,
    }
    publication_id = record_publication(
        session,
        name=name,
        kind="generalized",
        method=found.method,
        source=registered,
        parameters=parameters,
        layout=recoding.layout,
        records=snapshot.n_records,
        guarantee=guarantee,
        metrics=metrics,
        relations=[name + suffix for suffix in SUFFIXES],
    )
    return Published(
        publication_id=publication_id,
        name=name,
        guarantee=guarantee,
        records=snapshot.n_records,
        metrics=metrics,
        seconds=time.perf_counter() - started,
    )


def _search(
    session: Session,
    microdata: Microdata,
    k: int,
    method: str,
    options: _Options,
    constraint: Constraint | None,
) -> _Found:
    """Find classes, then make them satisfy the constraint, then lower their loss."""
    pulse = Pulse(options.time_limit, session.heartbeat)
    block_size = whole_option(options.given, "block_size", None, least=2)
    if method == "auto":
        advice = recommend(
            microdata.n_records, len(microdata.attributes), k, refined=options.refine
        )
        method, block_size = advice.method, block_size or advice.block_size
        session.warn(f"method {method} was chosen: {advice.reason}")
    session.step(f"searching classes: {method}")
    # Seeded afresh: it decides on losses, not on who can be told from whom.
    random = np.random.default_rng(secrets.randbits(128))
    found = _run(session, microdata, k, method, options, block_size, random)
    classes = found.class_of_record
    if constraint is not None:
        session.step("enforcing the constraints")
        classes = enforce(microdata, classes, k, constraint, pulse=pulse).class_of_record
    if options.refine and method != "optimal":
        session.step("refining the classes")
        classes = lower_loss(
            microdata, classes, k,
            random=random, constraint=constraint, pulse=pulse,
        ).class_of_record  # fmt: skip
    if options.max_suppressed:
        session.step("suppressing records")
        classes = suppress(
            microdata, classes, k, options.max_suppressed,
            constraint=constraint, pulse=pulse,
        ).class_of_record  # fmt: skip
    return _Found(found.method, classes, found.proof)


def _run(
    session: Session,
    microdata: Microdata,
    k: int,
    method: str,
    options: _Options,
    block_size: int | None,
    random: np.random.Generator,
) -> _Found:
    beat: Callable[[], None] = session.heartbeat
    proof: dict[str, float] = {}
    if method == "optimal":
        best = optimal(
            microdata, k,
            formulation=options.choice("formulation", ("set_partition", "bigm")),
            time_limit=options.time_limit, heartbeat=beat,
        )  # fmt: skip
        classes = best.class_of_record
        proof = {"gap": best.gap, "lower_bound": float(best.lower_bound)}
        if best.status != "optimal":
            session.warn(
                "time ran out: the classes are not proven optimal, their loss may be up to"
                f" {best.gap:.2%} above the optimum"
            )
    elif method == "split_carry":
        classes = split_carry(
            microdata, k,
            s=whole_option(options.given, "s", 3) or 3,
            carry=whole_option(options.given, "carry", None, least=0),
            bubble=options.pair("bubble"), time_limit=options.time_limit, heartbeat=beat,
        ).class_of_record  # fmt: skip
    elif method == "greedy_search":
        rule = options.choice("left_over", ("least_increase", "least_result"))
        classes = greedy_search(
            microdata, k, block_size=block_size, left_over=rule, pulse=Pulse(heartbeat=beat)
        ).class_of_record
    elif method == "k_member":
        if microdata.n_records > _MOST_FOR_K_MEMBER:
            raise InvalidParameterError(
                "the table is too large for the method k_member",
                detail=f"n_records = {microdata.n_records:,}, limit = {_MOST_FOR_K_MEMBER:,}",
                hint="use the method greedy_search",
            )
        classes = k_member(microdata, k, random=random, pulse=Pulse(heartbeat=beat)).class_of_record
    elif method == "mondrian":
        cut = options.choice("cut", ("strict", "relaxed"))
        classes = mondrian(microdata, k, cut=cut, pulse=Pulse(heartbeat=beat)).class_of_record
    else:
        classes = initial(microdata, k).class_of_record
    return _Found(method, classes, proof)


def _publish_rows(recoding: Recoding, class_of_record: IntArray) -> Check:
    """Write cells and rows; check that each original value lies within its cell."""
    published = np.flatnonzero(class_of_record >= 0)
    members, numbered = np.unique(class_of_record[published], return_inverse=True)
    classes = np.full(class_of_record.size, -1, dtype=np.int64)
    classes[published] = numbered
    table = recoding.write(cells_of_classes(recoding.microdata, classes), classes)
    outside = recoding.count_outside(table, classes)
    recoding.finish(table)
    return Check(
        "every original value lies within its cell",
        "0 records outside",
        f"{outside} records outside, {members.size} classes",
        holds=outside == 0,
    )
