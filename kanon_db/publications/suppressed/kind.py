"""Publishing with suppressed cells [PG]: every row keeps what one of the pattern vectors keeps."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.suppression.greedy import LEFT_OVER, Suppression, greedy
from kanon_db.algorithms.suppression.optimal import optimal
from kanon_db.algorithms.suppression.patterns import (
    PatternSet,
    all_patterns,
    expand_rules,
    parse_patterns,
)
from kanon_db.algorithms.suppression.row_types import identical_rows
from kanon_db.catalog.entries import Source, record_publication
from kanon_db.catalog.sources import open_source
from kanon_db.errors import InvalidParameterError
from kanon_db.metrics.suppression import usefulness_loss
from kanon_db.publications.options import (
    MAX_TIME_LIMIT,
    attribute_weights,
    number_option,
    parse_options,
)
from kanon_db.publications.pipeline import (
    Published,
    check_choice,
    check_readers,
    require_checks,
    reserve_name,
    warn_of_other_publications,
)
from kanon_db.publications.rows.view import (
    SUFFIXES,
    CellTable,
    RowView,
    grant_row_view,
    layout_of,
    warn_of_unchanged_columns,
    write_row_view,
)
from kanon_db.publications.suppressed.examine import examine_suppressed
from kanon_db.randomness import SecureRandom
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import check_comparable, int4_bytes, with_numbers
from kanon_db.transfer.snapshot import (
    DistinctValues,
    distinct_values,
    read_codes,
    read_numbers,
    take_snapshot,
)

METHODS: Final = ("greedy", "optimal")
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {"greedy": (), "optimal": ("time_limit",)}


@dataclass(frozen=True)
class SuppressionPattern:
    """One pattern vector, as it is shown before use.

    Attributes
    ----------
    position : int
        When the greedy method tries it, from 1.
    pattern : str
        ``*`` suppresses, ``.`` keeps, in the order of the quasi-identifiers.
    suppressed : list of str
        The quasi-identifiers that it suppresses.
    cost : float
        Of one record: the sum of their weights.
    """

    position: int
    pattern: str
    suppressed: list[str]
    cost: float


def suppression_patterns(
    session: Session,
    source: str,
    *,
    patterns: Sequence[str] | None = None,
    rules: str | None = None,
    weights: str | None = None,
) -> list[SuppressionPattern]:
    """Say which patterns `publish_suppressed` would use, in the order in which it tries them.

    Parameters
    ----------
    source : str
        A registered relation, as SQL text.
    patterns, rules, weights
        As for :func:`publish_suppressed`.

    Raises
    ------
    NotFoundError
        When the source is not registered.
    InvalidParameterError
        When patterns, rules or weights are malformed.
    """
    registered, _ = open_source(session, source)
    allowed = _allowed_patterns(registered, patterns, rules, weights)
    names = np.array(registered.quasi_identifiers, dtype=object)
    return [
        SuppressionPattern(position, text, names[stars].tolist(), cost / allowed.cost_unit)
        for position, (text, stars, cost) in enumerate(
            zip(allowed.texts, allowed.stars, allowed.costs.tolist(), strict=True), start=1
        )
    ]


def publish_suppressed(
    session: Session,
    source: str,
    name: str,
    *,
    k: int,
    patterns: Sequence[str] | None = None,
    method: str = "greedy",
    rules: str | None = None,
    weights: str | None = None,
    options: str | None = None,
    readers: Sequence[str] | None = None,
    replace: bool = False,
) -> Published:
    """Publish a source with suppressed cells, verified before it is visible.

    Parameters
    ----------
    session : Session
        In a transaction of the publishing role, which needs SELECT on the source.
    source : str
        A registered relation, as SQL text.
    name : str
        The publication: materialized view ``<name>``.
    k : int
        Fewest rows that share what is kept of them.
    patterns : sequence of str, optional
        Pattern vectors: ``*`` suppresses, ``.`` keeps, in the order of the quasi-identifiers.
    method : {"greedy", "optimal"}
    rules : str, optional
        JSON list of rules that make the patterns; see
        :func:`~kanon_db.algorithms.suppression.patterns.expand_rules`. Without patterns and
        rules, all patterns are allowed.
    weights : str, optional
        JSON, cost of a suppressed cell by quasi-identifier; those that the registration gave
        otherwise, or 1.
    options : str, optional
        JSON: ``time_limit`` in seconds, of the method optimal (60).
    readers : sequence of str, optional
        Roles that may read the publication; ``kanon_analyst`` by default.
    replace : bool
        Replace a publication of this name in the same transaction.

    Returns
    -------
    Published

    Raises
    ------
    InfeasibleError
        When the patterns leave no place for some records.
    KanonError
        For everything else that is refused; the transaction must then be rolled back.

    Notes
    -----
    **Source:** [PG] Sections 1 and 2. A kept cell is published as the first of the values that
    its type calls equal, so that 1.0 and 1.00 do not tell two rows of one class apart. Rows come
    in a random order from the operating system's cryptographic source.
    """
    started = time.perf_counter()
    check_choice("method", method, METHODS)
    chosen = parse_options(options, OPTIONS[method])
    time_limit = number_option(chosen, "time_limit", 60.0, above=0.0, most=MAX_TIME_LIMIT)
    registered, types = open_source(session, source)
    relation = registered.relation
    allowed = _allowed_patterns(registered, patterns, rules, weights)
    schema = reserve_name(session, name, SUFFIXES, replace=replace)
    roles = check_readers(session, readers, schema)
    random = SecureRandom()

    layout = layout_of(
        registered, types, ["value"] * len(registered.quasi_identifiers), with_pattern=True
    )
    view = RowView.of(session, schema, name, layout)
    columns = [column for column in types if column not in registered.identifiers]
    snapshot = take_snapshot(session, relation, columns)
    check_comparable(session, relation, registered.quasi_identifiers)
    if k > snapshot.n_records:
        raise InvalidParameterError(
            "k must not exceed the number of records",
            detail=f"{relation}: k = {k}, n_records = {snapshot.n_records}",
            hint="lower k",
        )
    values = [distinct_values(snapshot, types[column]) for column in registered.quasi_identifiers]
    codes = read_codes(snapshot, values)
    session.step("choosing patterns")
    if method == "optimal":
        found = optimal(codes, allowed, k, pulse=Pulse(time_limit, session.heartbeat))
        suppression, proof = found.suppression, {"gap": found.proof.gap}
        if found.proof.status != "optimal":
            session.warn(
                f"time ran out: the suppression is not proven optimal, it may cost up to"
                f" {found.proof.gap:.2%} more than the optimum"
            )
    else:
        suppression, proof = greedy(codes, allowed, k, pulse=Pulse(heartbeat=session.heartbeat)), {}

    cells, class_of_record = _write_cells(session, view, values, codes, suppression)
    order = random.permutation(snapshot.n_records)
    write_row_view(session, view, snapshot, cells, class_of_record, order)
    numeric = {
        position: numbers[codes[:, position]]
        for position, column in enumerate(values)
        if (numbers := read_numbers(column, registered)) is not None and not np.isnan(numbers).any()
    }
    from_source = {"usefulness_loss": usefulness_loss(codes, suppression.suppressed, numeric)}
    if weights is not None or allowed.cost_unit != 1:
        from_source["suppression_cost"] = float(suppression.cost)
    session.fetch(f"DROP TABLE {cells.table}")
    for column in values:
        column.drop()
    snapshot.drop()
    grant_row_view(session, view, roles)

    session.step("verifying")
    parameters = {
        "k": k,
        "patterns": None if patterns is None and rules is None else list(allowed.texts),
        "rules": None if rules is None else json.loads(rules),
        "weights": None if weights is None else json.loads(weights, parse_float=str),
        "options": chosen,
        "readers": list(roles),
    }
    examined = examine_suppressed(session, view, parameters, records=snapshot.n_records)
    require_checks(examined.checks)
    warn_of_unchanged_columns(session, layout)
    warn_of_other_publications(session, relation, roles)
    guarantee = (
        f"{k}-anonymity by suppression: every combination of kept quasi-identifiers occurs at"
        f" least {k} times"
    )
    if suppression.n_left_over:
        guarantee += f"; {suppression.n_left_over} left-over records are suppressed fully"
    metrics = {**examined.metrics, **from_source, **proof}
    publication_id = record_publication(
        session,
        name=name,
        kind="suppressed",
        method=method,
        source=registered,
        parameters=parameters,
        layout=layout,
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


def _allowed_patterns(
    source: Source, patterns: Sequence[str] | None, rules: str | None, weights: str | None
) -> PatternSet:
    costs = attribute_weights(source, weights)
    if patterns is not None and rules is not None:
        raise InvalidParameterError(
            "patterns are either listed or made by rules", hint="give patterns or rules, not both"
        )
    n_columns = len(source.quasi_identifiers)
    if patterns is not None:
        return parse_patterns(patterns, n_columns, costs)
    if rules is not None:
        return expand_rules(_parse_rules(rules), source.quasi_identifiers, costs)
    return all_patterns(n_columns, costs)


def _parse_rules(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidParameterError("the rules are not readable JSON") from None


def _write_cells(
    session: Session,
    view: RowView,
    values: Sequence[DistinctValues],
    codes: CodeArray,
    suppression: Suppression,
) -> tuple[CellTable, IntArray]:
    """Write what the rows of each class show of their quasi-identifiers, and by which pattern.

    Returns
    -------
    cells : CellTable
    class_of_record : ndarray of int64, shape (n_records,)
    """
    session.step("writing the classes")
    patterns = suppression.patterns
    # Left-over records exist only where the last pattern suppresses everything.
    pattern = np.where(
        suppression.pattern_of_record == LEFT_OVER, len(patterns) - 1, suppression.pattern_of_record
    )
    shown = np.where(patterns.stars[pattern], -1, codes)
    class_of_record = identical_rows(np.column_stack([pattern, shown + 1]))
    member = np.empty(class_of_record.max() + 1, dtype=np.int64)
    member[class_of_record] = np.arange(class_of_record.size)

    suffix = secrets.token_hex(8)
    table = session.identifier("pg_temp", f"kanon_cells_{suffix}")
    number = session.identifier(f"kanon_class_{suffix}")
    cells = ", ".join(f"v{i}.value AS {name}" for i, name in enumerate(view.quasi_identifiers))
    numbered, (position, *code_columns) = with_numbers(
        session,
        "(SELECT generate_series(0, $1::int4 - 1) AS i)",
        *((parameter, "r.i") for parameter in range(3, 4 + len(values))),
    )
    # A suppressed cell has the code -1, which no value has.
    joins = " ".join(
        f"LEFT JOIN {column.table} AS v{i} ON v{i}.code = c.{code}"
        for i, (column, code) in enumerate(zip(values, code_columns, strict=True))
    )
    session.fetch(
        f"CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS"
        f" SELECT c.i AS {number}, {cells}, p.pattern AS {view.pattern}"
        f" FROM {numbered} AS c JOIN unnest($2::text[]) WITH ORDINALITY AS p (pattern, position)"
        f" ON p.position = c.{position} + 1 {joins}",
        str(member.size),
        list(patterns.texts),
        int4_bytes(pattern[member]),
        *(int4_bytes(column[member]) for column in shown.T),
    )
    return CellTable(table, number), class_of_record
