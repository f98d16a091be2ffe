"""Searching once more, together, for the classes of those records of all parts that lose most.

In each part, the last classes are made of what the others have left. The records that are left in
one part would often go well with those of another.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kanon_db.spark.environment import in_own_words, through_arrow
from kanon_db.spark.generalized.searching import CLASS, LOSS, PartSearch, searching
from kanon_db.spark.kind import SparkJob
from kanon_db.spark.rows import parts
from kanon_db.spark.rows.writing import keep

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def searched_again(job: SparkJob, recoded: DataFrame, search: PartSearch) -> DataFrame:
    """Search again for the classes that lose most, as many as have the records of one part.

    Parameters
    ----------
    job : SparkJob
    recoded : DataFrame
        From files, as :class:`.PartSearch` returns the records of each part, with their codes.
    search : PartSearch

    Returns
    -------
    DataFrame
        From files: with the new classes, if these lose less than the old ones.

    Notes
    -----
    Constraints that hold in each class of some records hold for all of these together, so the
    classes that replace them can be enforced, too. Records that were left out stay left out.
    """
    from pyspark.sql import functions as f

    job.voice.step("searching again for the classes that lose most")
    lose_most = _lose_most(recoded)
    chosen = recoded.where(lose_most)
    once_more = replace(search, request=replace(search.request, max_suppressed=Fraction(0)))
    context: Any = job.session.sparkContext
    found = through_arrow(
        chosen.coalesce(1), searching(context.broadcast(once_more)), recoded.schema
    )
    again = keep(job, found, "recoded-again")
    with in_own_words("classes could not be compared"):
        before, after = (
            one.agg(f.sum(LOSS).alias("lost")).collect()[0]["lost"] for one in (chosen, again)
        )
    if before is None or after >= before:
        return recoded
    return recoded.where(~lose_most).unionByName(again)


def _lose_most(recoded: DataFrame) -> Column:
    """Say whether a record's class is among those that lose most, all of which fit into a part."""
    from pyspark.sql import functions as f

    with in_own_words("the losses of classes could not be compared"):
        beyond = (
            recoded.select(LOSS, CLASS)
            .orderBy(f.desc(LOSS), CLASS)
            .offset(parts.RECORDS_OF_PART)
            .limit(1)
            .collect()
        )
    loss, number = beyond[0] if beyond else (0, 0)
    if not loss:
        return f.col(LOSS) > 0
    return (f.col(LOSS) > loss) | ((f.col(LOSS) == loss) & (f.col(CLASS) < number))
