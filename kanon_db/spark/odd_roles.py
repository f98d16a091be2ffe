"""Roles that are allowed, and yet probably a mistake: the warnings of `register_source`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kanon_db.catalog.source_checks import MOST_RECORDS, warn_of_recurring, warn_of_values
from kanon_db.errors import ServerError
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.names import quoted
from kanon_db.spark.snapshot import Snapshot
from kanon_db.spark.source import Microdata
from kanon_db.spark.voice import Voice

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COLUMN: Final = "column"
_VALUE: Final = "value"
_TIMES: Final = "times"


def warn_of_roles(
    voice: Voice, microdata: Microdata, snapshot: Snapshot, shown: Sequence[str]
) -> None:
    """Warn of roles that are probably mistakes: by the columns' names, and by their values.

    As many records as `register_source` looks at are looked at, and values are only counted: those
    that are published in the snapshot, identifiers, which are not in it, in the source. An entity
    has one record here, so that its records need not be taken together.

    Parameters
    ----------
    voice : Voice
    microdata : Microdata
    snapshot : Snapshot
    shown : sequence of str
        The quasi-identifiers that are published as they are.
    """
    insensitive = [name for name in microdata.source.insensitive if name in snapshot.names]
    published = dict.fromkeys((*shown, *insensitive))
    if published or microdata.source.identifiers:
        voice.step("looking for columns that identify people")
    shares = _shares_of_unique(snapshot.frame, {name: snapshot.column(name) for name in published})
    warn_of_values(voice.warn, shares, shown, insensitive)
    _warn_of_identifiers(voice, microdata)


def _warn_of_identifiers(voice: Voice, microdata: Microdata) -> None:
    """Warn of identifiers that recur; who publishes need not be able to read any."""
    source = microdata.source
    if source.entity is not None:
        return
    try:
        shares = _shares_of_unique(
            microdata.frame, {name: quoted(name) for name in source.identifiers}
        )
    except ServerError:  # whose detail may quote data
        voice.warn(
            f"the identifiers of {source.relation} cannot be read, so it is not known whether"
            " several records have the same one"
        )
    else:
        warn_of_recurring(voice.warn, shares)


def _shares_of_unique(frame: DataFrame, columns: dict[str, str]) -> dict[str, float]:
    """Return which share of each column's values occur once; a column of NULLs only has none.

    All columns are counted by one job. Hashes of 64 bits stand for values: that two of a million
    values have the same one happens once in 37 million times, and would change a share by 0.0002 %.
    """
    from pyspark.sql import functions as f

    if not columns:
        return {}
    numbered: list[Column] = [
        f.struct(f.lit(i).alias(_COLUMN), _hash(f.col(column)).alias(_VALUE))
        for i, column in enumerate(columns.values())
    ]
    with in_own_words("values could not be counted"):
        counted = (
            frame.limit(MOST_RECORDS)
            .select(f.explode(f.array(*numbered)).alias("cell"))
            .select(f"cell.{_COLUMN}", f"cell.{_VALUE}")
            .where(f.col(_VALUE).isNotNull())
            .groupBy(_COLUMN, _VALUE)
            .agg(f.count("*").alias(_TIMES))
            .groupBy(_COLUMN)
            .agg((f.count_if(f.col(_TIMES) == 1) / f.sum(_TIMES)).alias("share"))
            .collect()
        )
    names = list(columns)
    return {names[row[_COLUMN]]: row["share"] for row in counted}


def _hash(value: Column) -> Column:
    """Return the hash of a value of any type, which its text stands for; NULL of NULL."""
    from pyspark.sql import functions as f

    return f.when(value.isNotNull(), f.xxhash64(value.cast("string")))
