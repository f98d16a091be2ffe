"""What the PL/Python functions call: one function each, and the edge where errors leave.

Imports of the heavier parts wait for the call that needs them, so that a session's first
estimate does not pay for numpy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import kanon_db
from kanon_db.errors import InvalidParameterError, KanonError
from kanon_db.session.plpy_session import PlpySession

if TYPE_CHECKING:
    from kanon_db.publications.pipeline import Published

_T = TypeVar("_T")


def _choose_cache() -> None:
    """Let compiled code be kept where the server's user may write: numba insists on a place.

    That is the user's home as a rule; a service may have none. The working directory of a server
    process is its data directory, closed to everybody else.
    """
    if "NUMBA_CACHE_DIR" not in os.environ and not os.access(Path("~").expanduser(), os.W_OK):
        os.environ["NUMBA_CACHE_DIR"] = str(Path.cwd() / "kanon_db_cache")


_choose_cache()


@contextmanager
def _edge(plpy: Any) -> Iterator[PlpySession]:
    """Hand every error to PostgreSQL as an error of this call, without data values.

    Raising ends the statement, so a cancel that arrives as an exception is never swallowed.
    """
    try:
        yield PlpySession(plpy)
    except KanonError as error:
        _raise(plpy, error)
    except Exception as error:  # noqa: BLE001  # the one edge: a defect's words can quote data
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        where = "unknown place"
        if traceback is not None:
            code = traceback.tb_frame.f_code
            where = f"{code.co_qualname}, line {traceback.tb_lineno}"
        _raise(
            plpy,
            KanonError(
                "kanon_db failed by a defect of its own",
                detail=f"{type(error).__name__} in {where}",
                hint="please report it; nothing was changed",
            ),
        )


def _raise(plpy: Any, error: KanonError) -> None:
    fields = {"detail": error.detail, "hint": error.hint, "sqlstate": error.sqlstate}
    # The function raises, with all fields; the class plpy.Error takes a message only.
    plpy.error(error.message, **{name: text for name, text in fields.items() if text})


def _given(value: Any, parameter: str) -> Any:
    """Refuse NULL for a parameter that needs a value."""
    if value is None:
        raise InvalidParameterError(f"{parameter} must not be NULL")
    return value


def _elements(value: Sequence[_T | None] | None, parameter: str) -> list[_T]:
    return [_given(element, f"an element of {parameter}") for element in _given(value, parameter)]


def _published_row(published: Published) -> tuple[Any, ...]:
    return (
        published.publication_id,
        published.name,
        published.guarantee,
        published.records,
        json.dumps(published.metrics),
        published.seconds,
    )


def version() -> str:
    """Return the version of the package that the server runs."""
    return kanon_db.__version__


def register_source(
    plpy: Any,
    source: str | None,
    quasi_identifiers: Sequence[str | None] | None,
    sensitive: str | None,
    identifiers: Sequence[str | None] | None,
    attributes: str | None,
) -> int:
    """`kanon.register_source`."""
    from kanon_db.catalog.sources import register_source as operation

    with _edge(plpy) as session:
        return operation(
            session,
            _given(source, "source"),
            quasi_identifiers=_elements(quasi_identifiers, "quasi_identifiers"),
            sensitive=sensitive,
            identifiers=_elements(identifiers or [], "identifiers"),
            attributes=attributes,
        )


def publish_buckets(
    plpy: Any,
    source: str | None,
    publication: str | None,
    method: str | None,
    privacy: str | None,
    max_bucket_size: int | None,
    assignment: str | None,
    readers: Sequence[str | None] | None,
    replace: bool | None,
    options: str | None,
) -> list[tuple[Any, ...]]:
    """`kanon.publish_buckets`."""
    with _edge(plpy) as session:
        from kanon_db.publications.buckets.kind import publish_buckets as operation

        published = operation(
            session,
            _given(source, "source"),
            _given(publication, "publication"),
            method=_given(method, "method"),
            privacy=_given(privacy, "privacy"),
            max_bucket_size=_given(max_bucket_size, "max_bucket_size"),
            assignment=_given(assignment, "assignment"),
            readers=None if readers is None else _elements(readers, "readers"),
            replace=bool(replace),
            options=options,
        )
        return [_published_row(published)]


def publish_suppressed(
    plpy: Any,
    source: str | None,
    publication: str | None,
    k: int | None,
    patterns: Sequence[str | None] | None,
    method: str | None,
    rules: str | None,
    weights: str | None,
    options: str | None,
    readers: Sequence[str | None] | None,
    replace: bool | None,
) -> list[tuple[Any, ...]]:
    """`kanon.publish_suppressed`."""
    with _edge(plpy) as session:
        from kanon_db.publications.suppressed.kind import publish_suppressed as operation

        published = operation(
            session,
            _given(source, "source"),
            _given(publication, "publication"),
            k=_given(k, "k"),
            patterns=None if patterns is None else _elements(patterns, "patterns"),
            method=_given(method, "method"),
            rules=rules,
            weights=weights,
            options=options,
            readers=None if readers is None else _elements(readers, "readers"),
            replace=bool(replace),
        )
        return [_published_row(published)]


def publish_generalized(
    plpy: Any,
    source: str | None,
    publication: str | None,
    k: int | None,
    method: str | None,
    weights: str | None,
    options: str | None,
    constraints: str | None,
    max_suppressed: Any,
    refine: bool | None,
    readers: Sequence[str | None] | None,
    replace: bool | None,
) -> list[tuple[Any, ...]]:
    """`kanon.publish_generalized`."""
    with _edge(plpy) as session:
        from kanon_db.publications.generalized.kind import publish_generalized as operation

        published = operation(
            session,
            _given(source, "source"),
            _given(publication, "publication"),
            k=_given(k, "k"),
            method=_given(method, "method"),
            weights=weights,
            options=options,
            constraints=constraints,
            max_suppressed=_given(max_suppressed, "max_suppressed"),
            refine=_given(refine, "refine"),
            readers=None if readers is None else _elements(readers, "readers"),
            replace=bool(replace),
        )
        return [_published_row(published)]


def publish_freeform(
    plpy: Any,
    source: str | None,
    publication: str | None,
    k: int | None,
    method: str | None,
    weights: str | None,
    options: str | None,
    readers: Sequence[str | None] | None,
    replace: bool | None,
) -> list[tuple[Any, ...]]:
    """`kanon.publish_freeform`."""
    with _edge(plpy) as session:
        from kanon_db.publications.freeform.kind import publish_freeform as operation

        published = operation(
            session,
            _given(source, "source"),
            _given(publication, "publication"),
            k=_given(k, "k"),
            method=_given(method, "method"),
            weights=weights,
            options=options,
            readers=None if readers is None else _elements(readers, "readers"),
            replace=bool(replace),
        )
        return [_published_row(published)]


def suppression_patterns(
    plpy: Any,
    source: str | None,
    patterns: Sequence[str | None] | None,
    rules: str | None,
    weights: str | None,
) -> list[tuple[int, str, list[str], float]]:
    """`kanon.suppression_patterns`."""
    with _edge(plpy) as session:
        from kanon_db.publications.suppressed.kind import suppression_patterns as operation

        found = operation(
            session,
            _given(source, "source"),
            patterns=None if patterns is None else _elements(patterns, "patterns"),
            rules=rules,
            weights=weights,
        )
        return [(p.position, p.pattern, p.suppressed, p.cost) for p in found]


def evaluate_counts(
    plpy: Any,
    name: str | None,
    queries: int | None,
    dimensionality: Sequence[int | None] | None,
    selectivity: Sequence[float | None] | None,
    seed: int | None,
) -> list[tuple[float | None, int, int, float, float]]:
    """`kanon.evaluate_counts`."""
    with _edge(plpy) as session:
        from kanon_db.answering.evaluation import evaluate_counts as operation

        rows = operation(
            session,
            _given(name, "name"),
            queries=_given(queries, "queries"),
            dimensionality=None
            if dimensionality is None
            else _elements(dimensionality, "dimensionality"),
            selectivity=None if selectivity is None else _elements(selectivity, "selectivity"),
            seed=seed,
        )
        return [astuple(row) for row in rows]


def verify(plpy: Any, name: str | None) -> list[tuple[str, str, str, bool]]:
    """`kanon.verify`."""
    with _edge(plpy) as session:
        from kanon_db.publications.examination import verify as operation

        checks = operation(session, _given(name, "name"))
        return [(c.check, c.bound, c.measured, c.holds) for c in checks]


def metrics(plpy: Any, name: str | None) -> list[tuple[str, float]]:
    """`kanon.metrics`."""
    with _edge(plpy) as session:
        from kanon_db.publications.examination import metrics as operation

        return list(operation(session, _given(name, "name")).items())


def drop_publication(plpy: Any, name: str | None) -> None:
    """`kanon.drop_publication`."""
    with _edge(plpy) as session:
        from kanon_db.publications.pipeline import drop_publication as operation

        operation(session, _given(name, "name"))


def estimate_count(plpy: Any, query: str | None) -> list[tuple[Any, ...]]:
    """`kanon.estimate_count`."""
    with _edge(plpy) as session:
        from kanon_db.answering.estimates import estimate_count as operation

        c = operation(session, _given(query, "query"))
        return [(c.estimate, c.std_error, c.lower_bound, c.upper_bound)]


def estimate_counts(plpy: Any, query: str | None) -> list[tuple[Any, ...]]:
    """`kanon.estimate_counts`."""
    with _edge(plpy) as session:
        from kanon_db.answering.estimates import estimate_counts as operation

        return [
            (key, c.estimate, c.std_error, c.lower_bound, c.upper_bound)
            for key, c in operation(session, _given(query, "query"))
        ]


def estimate(plpy: Any, query: str | None) -> list[tuple[Any, ...]]:
    """`kanon.estimate`."""
    with _edge(plpy) as session:
        from kanon_db.answering.estimates import estimate as operation

        answer = operation(session, _given(query, "query"))
        return [
            (
                group.key,
                measure.label,
                *(None if value is None else float(value) for value in astuple(estimated)),
            )
            for group in answer.groups
            for place, measure in answer.shown
            for estimated in (group.estimates[place],)
        ]


def explain_count(plpy: Any, query: str | None) -> list[tuple[Any, ...]]:
    """`kanon.explain_count`."""
    with _edge(plpy) as session:
        from kanon_db.answering.estimates import explain_count as operation

        return [astuple(line) for line in operation(session, _given(query, "query"))]


def rewrite_count(plpy: Any, query: str | None) -> str:
    """`kanon.rewrite_count`."""
    with _edge(plpy) as session:
        from kanon_db.answering.estimates import rewrite_count as operation

        return operation(session, _given(query, "query"))
