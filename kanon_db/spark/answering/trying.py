"""Conditions and expressions, calculated by Spark for values that the driver gives it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.evidence import Flags, NotReadError
from kanon_db.query import expressions as ex
from kanon_db.query.sql import Constants, write
from kanon_db.spark.answering.places import Place, places
from kanon_db.spark.environment import in_own_words, quiet
from kanon_db.spark.query import value_of_key
from kanon_db.spark.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLE: Final = "tried"


class SparkTries:
    """:class:`~kanon_db.spark.answering.pieces.Tries` of a session.

    Parameters
    ----------
    session : SparkSession
    own_words : callable
        Returns a context in which errors of the query's arithmetic become refusals.
    """

    def __init__(
        self, session: SparkSession, own_words: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._session, self._own_words = session, own_words

    def flags(self, condition: ex.Expression, values: Mapping[str, Any]) -> tuple[Flags, Flags]:
        """Say where a condition is true, and where it is false."""
        found = self._tried(condition, values, {"t": "{} IS TRUE", "f": "{} IS FALSE"})
        true, false = (np.asarray(found[name].to_numpy(), dtype=np.bool_) for name in "tf")
        return true, false

    def numbers(self, expression: ex.Expression, values: Mapping[str, Any]) -> FloatArray:
        """Return the values of an expression; NaN for NULL.

        Raises
        ------
        NotReadError
            If one is not finite.
        """
        found = self._tried(expression, values, {"x": "({})::float8"})["x"]
        numbers = np.asarray(found.to_numpy(), dtype=np.float64)  # NULL is NaN
        is_known = np.asarray(found.is_valid().to_numpy(), dtype=np.bool_)
        if not np.isfinite(numbers[is_known]).all():
            raise NotReadError
        return numbers

    def values(
        self, expression: ex.Expression, values: Mapping[str, Any], type_: ex.Type
    ) -> list[Place | None]:
        """Return the values of an expression, a number, as they are.

        Raises
        ------
        NotReadError
            If one is not finite.
        """
        if isinstance(expression, ex.Column):
            found = places(values[expression.name], type_)
        else:
            # Decimals have the digits that they were calculated with: a cast would drop these.
            sql = "({})" if type_.category == "numeric" else f"({{}})::{type_.name}"
            found = self._tried(expression, values, {"x": sql})["x"].to_pylist()
        if any(isinstance(x, float) and not math.isfinite(x) for x in found):
            raise NotReadError
        return found

    def keys(
        self, expression: ex.Expression, values: Mapping[str, Any]
    ) -> tuple[IntArray, list[str]]:
        """Return the places of an expression's values in their order, and these as JSON."""
        import pyarrow.compute as pc

        columns = {"k": "{}", "t": "jsonb_build_object('k', {})::text"}
        found = self._tried(expression, values, columns)
        key = found["k"].combine_chunks()
        distinct = pc.unique(key)
        ordered = distinct.take(pc.sort_indices(distinct))  # NULL last
        ranks = np.asarray(pc.index_in(key, value_set=ordered).to_numpy(), dtype=np.int64)
        _, first = np.unique(ranks, return_index=True)
        return ranks, [value_of_key(text) for text in found["t"].take(first).to_pylist()]

    def _tried(
        self, expression: ex.Expression, values: Mapping[str, Any], columns: Mapping[str, str]
    ) -> Any:
        """Calculate what follows from an expression, for each row of values."""
        import pyarrow as pa

        number = {name: f"v{place}" for place, name in enumerate(values)}
        n = max((len(array) for array in values.values()), default=1)
        given = pa.table(
            {"i": pa.array(np.arange(n)), **{number[name]: own for name, own in values.items()}}
        )
        constants = Constants()
        text = write(expression, lambda column: f"d.{number[column.name]}", constants)
        selected = ", ".join(f"{sql.format(text)} AS {name}" for name, sql in columns.items())
        with self._own_words(), in_own_words("values could not be tried"), quiet():
            frame = self._session.createDataFrame(given)
            tables = Tables(self._session, {_TABLE: frame})
            try:
                statement = f'SELECT d.i AS i, {selected} FROM "{_TABLE}" AS d'
                found = tables.select(statement, *constants.bound).toArrow()
            finally:
                tables.drop()
        return found.sort_by("i")
