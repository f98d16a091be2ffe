"""The simplest way to generalize on Spark, beside ours: fragments, each anonymized by itself.

``python -m benchmarks --write spark_fragments``; ``KANON_SPARK_FRAGMENTS`` has numbers of rows
(1000000). The idea is that of mosaicrown (De Capitani di Vimercati et al., Scalable Distributed
Data Anonymization for Large Datasets, 2023), written anew: a sample is cut on the driver, the cuts
divide all records into fragments, and in each of these Mondrian runs by itself. Mondrian is the
same function as in our publications.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness import table
from benchmarks.spark_cluster import QUASI_IDENTIFIERS, SENSITIVE, measured, source_of
from kanon_db.algorithms.generalization import CutDomains, PartTree, median_cut, mondrian
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.recoding import Microdata, cells_of_classes
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.spark._coded_records import PART, RECORDS_OF_PART, codes_in, number_parts
from kanon_db.spark._row_store import LOWER_END, UPPER_END
from kanon_db.spark.environment import through_arrow

ROWS: Final = [int(n) for n in os.environ.get("KANON_SPARK_FRAGMENTS", "1000000").split()]
WORKERS: Final = 2
SAMPLE: Final = 100_000
CUTS: Final = ("fragments_by_quantiles", "fragments_by_mondrian")
_CASES: Final = {
    "mondrian": "`publish_generalized`, `mondrian`",
    "fragments_by_quantiles": "fragments by quantiles",
    "fragments_by_mondrian": "fragments by Mondrian",
}


def main() -> str:
    """Return the results as Markdown."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="kanon-bench-spark-") as name:
        folder = Path(name)
        for n in ROWS:
            with source_of(folder, n) as source:
                for case, what in _CASES.items():
                    found = measured(WORKERS, folder / "run", source, case, judge=True)
                    lines.append(_line(n, what, found))
    return (
        "The rows and the cluster of the section on Spark, with"
        f" {WORKERS} workers. *Fragments* are the idea of mosaicrown, written anew: the driver cuts"
        f" a sample of about {SAMPLE:,} records, by quantiles of the column with the most values or"
        " by Mondrian, until as many fragments are there as keep each within"
        f" {RECORDS_OF_PART:,} records if the sample is right; then Mondrian runs in each (the same"
        " function everywhere, with the domains of the sample). That is all that is done there:"
        " no snapshot of the source, no key and no new order (rows lie in the order of fragments"
        " and classes), no comparison with the source, no verification of what was written, no"
        " manifest, and nothing that is refused. Its figures are what the search alone takes. The"
        " GCP, relative to the domains of the whole table, and the records in groups of fewer than"
        " k = 10 are counted afterwards in the files of all three.\n\n"
        + table(
            ["rows", "method", "parts", "seconds", "over copying", "shuffled bytes a row",
             "workers' memory", "GCP", "records in groups below k"],
            lines,
        )
    )  # fmt: skip


def _line(n: int, what: str, found: Any) -> list[str]:
    return [
        f"{n:,}", what, f"{found['parts']:,.0f}", f"{found['seconds']:.1f}",
        f"{found['seconds'] / found['copying']:.1f}", f"{found['shuffled'] / n:.0f}",
        f"{found['workers'] / 2**30:.1f} GB", f"{found['gcp']:.4f}", f"{found['below']:,}",
    ]  # fmt: skip


def publish(
    frame: Any, target: str, case: str, k: int, on_step: Callable[[str], None]
) -> dict[str, Any]:
    """Generalize fragments of a table whose quasi-identifiers are small whole numbers.

    Parameters
    ----------
    frame : DataFrame
    target : str
        Where Parquet files are written.
    case : str
        One of :data:`CUTS`.
    k : int
    on_step : callable
        Called with the name of each step.

    Returns
    -------
    dict
        How many fragments there are (``parts``).
    """
    from pyspark.sql.types import IntegerType, StructType

    on_step("sampling")
    n = frame.count()
    sampled = frame.select(*QUASI_IDENTIFIERS).sample(min(1.0, SAMPLE / n), seed=1).toArrow()
    sample = codes_in(sampled, QUASI_IDENTIFIERS)
    on_step("cutting the sample")
    columns = list(range(sample.shape[1]))
    if case == "fragments_by_quantiles":
        columns = [max(columns, key=lambda place: np.unique(sample[:, place]).size)]
    n_levels = max(0, -(-n // RECORDS_OF_PART) - 1).bit_length()
    tree = cut_sample(sample[:, columns], n_levels, k)
    on_step("anonymizing fragments")
    names = [QUASI_IDENTIFIERS[place] for place in columns]
    known = tree, np.array(tree.leaves), names
    schema = StructType([*frame.schema.fields]).add(PART, IntegerType())
    numbered = through_arrow(frame, number_parts, schema, known)
    shown = StructType()
    for name in QUASI_IDENTIFIERS:
        shown.add(name, StructType().add(LOWER_END, IntegerType()).add(UPPER_END, IntegerType()))
    shown.add(SENSITIVE, IntegerType())
    domains = list(zip(sample.min(axis=0).tolist(), sample.max(axis=0).tolist(), strict=True))
    own = numbered.groupBy(PART).applyInArrow(generalizing(domains, k), shown)
    own.write.parquet(target)
    return {"parts": len(tree.leaves)}


def cut_sample(sample: CodeArray, n_levels: int, k: int) -> PartTree:
    """Cut a sample in halves again and again; with one column, these are its quantiles.

    Parameters
    ----------
    sample : ndarray of int32, shape (n_records, n_columns)
    n_levels : int
        How often each fragment is cut.
    k : int
        Of the sample, each side of a cut has so many records.
    """
    # A value is its own code. The domain begins at the smallest one that is there.
    numbers = [
        np.maximum(np.arange(top + 1.0), low)
        for low, top in zip(sample.min(axis=0), sample.max(axis=0), strict=True)
    ]
    domains = CutDomains.of([Attribute(each.size, each, each[0], each[-1]) for each in numbers])
    tree = PartTree(sample.shape[0])
    for _ in range(n_levels):
        nodes = tree.nodes_of(sample)
        for node in tree.leaves:
            inside = sample[nodes == node]
            counts = [
                np.bincount(inside[:, place], minlength=each.size)
                for place, each in enumerate(numbers)
            ]
            if (cut := median_cut(domains, counts, k)) is not None:
                tree.cut(node, cut)
    return tree


def generalizing(domains: Sequence[tuple[int, int]], k: int) -> Callable[[Any], Any]:
    """Return the function that anonymizes a fragment.

    Parameters
    ----------
    domains : sequence of (int, int)
        The least and the greatest value of each quasi-identifier, as far as is known.
    k : int
    """

    def generalize(fragment: Any) -> Any:
        import pyarrow as pa

        records = codes_in(fragment, QUASI_IDENTIFIERS)
        codes, values, attributes = np.empty_like(records), [], []
        for place, (low, high) in enumerate(domains):
            own, codes[:, place] = np.unique(records[:, place], return_inverse=True)
            values.append(pa.array(own))
            bounds = float(min(low, own[0])), float(max(high, own[-1]))
            attributes.append(Attribute(own.size, own.astype(np.float64), *bounds))
        data = Microdata(codes, tuple(attributes))
        classes = np.zeros(data.n_records, dtype=np.int64)
        if data.n_records >= k:
            classes = mondrian(data, k).class_of_record
        shown = []
        for cells, own in zip(cells_of_classes(data, classes), values, strict=True):
            ends = [own.take(pa.array(side[classes])) for side in (cells.low, cells.high)]
            shown.append(pa.StructArray.from_arrays(ends, [LOWER_END, UPPER_END]))
        shown.append(pa.chunked_array(fragment[SENSITIVE]).combine_chunks())
        return pa.table(shown, names=[*QUASI_IDENTIFIERS, SENSITIVE])

    return generalize


def judged(session: Any, published: str, source: str, k: int) -> dict[str, Any]:
    """Measure rows from their files alone: the GCP, and how many are in groups of fewer than k.

    Parameters
    ----------
    session : SparkSession
    published, source : str
    k : int
    """
    from pyspark.sql import functions as f

    rows, people = session.read.parquet(published), session.read.parquet(source)
    ends = [(f.min(name), f.max(name)) for name in QUASI_IDENTIFIERS]
    bounds = people.agg(*(end for pair in ends for end in pair)).first()
    extents = [bounds[i + 1] - bounds[i] for i in range(0, len(bounds), 2)]
    losses = [
        (f.col(name)[UPPER_END] - f.col(name)[LOWER_END]) / f.lit(float(extent))
        for name, extent in zip(QUASI_IDENTIFIERS, extents, strict=True)
    ]
    (gcp,) = rows.agg(f.avg(sum(losses) / len(losses))).first()
    groups = rows.groupBy(*QUASI_IDENTIFIERS).agg(f.count("*").alias("n"))
    (below,) = groups.agg(f.sum(f.when(f.col("n") < k, f.col("n")).otherwise(0))).first()
    return {"gcp": float(gcp), "below": int(below)}
