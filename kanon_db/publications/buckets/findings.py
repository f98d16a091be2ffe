"""What was found in the published tables of a bucketization, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanon_db.publications.exposure import check_exposure, report_unbounded
from kanon_db.publications.results import Check, Examination
from kanon_db.publications.waiting import check_waiting


@dataclass(frozen=True)
class Counted:
    """The buckets of one table, counted from its rows.

    Attributes
    ----------
    records : int
        In all buckets.
    differing : int
        Buckets whose size does not follow from their number.
    unreadable : int
        Rows without a bucket or a count.
    of_sizes : dict of int to int
        The number of buckets of each size.
    """

    records: int
    differing: int
    unreadable: int
    of_sizes: Mapping[int, int]


@dataclass(frozen=True)
class Findings:
    """What was counted in both tables.

    Attributes
    ----------
    qit, sat : Counted
    repeated : int
        Rows of the SAT for a bucket and a value that have one already.
    certain : int
        People whose bucket has no other value than theirs.
    exposure : mapping
        See :func:`~kanon_db.publications.exposure.exposure_statement`.
    """

    qit: Counted
    sat: Counted
    repeated: int
    certain: int
    exposure: Mapping[str, Any]

    def judged(
        self,
        n_buckets: int,
        parameters: Mapping[str, Any],
        records: int,
        relations: Check,
        further: Sequence[Check] = (),
    ) -> Examination:
        """Compare what was found with what was promised.

        Parameters
        ----------
        n_buckets : int
        parameters : mapping
            What the publisher asked for.
        records : int
            Number of records that the source had.
        relations : Check
            Whether the tables are those that were published.
        further : sequence of Check
            Of what follows from the tables, such as bitmaps.
        """
        qit, sat, exposure = self.qit, self.sat, self.exposure
        sizes = sat.of_sizes
        loss = sum(n * (size - 1) ** 2 for size, n in sizes.items())
        checks = [
            relations,
            Check(
                "every record is published once",
                f"{records} records",
                f"{qit.records} in QIT, {sat.records} in SAT",
                holds=qit.records == sat.records == records,
            ),
            *(
                Check(
                    f"{table}: every bucket has the size that follows from its number",
                    f"{n_buckets} buckets, 0 differ",
                    f"{found.differing} differ, {found.unreadable} rows without a bucket or a"
                    " count",
                    holds=found.differing == found.unreadable == 0,
                )
                for table, found in (("QIT", qit), ("SAT", sat))
            ),
            Check(
                "SAT counts each value of a bucket once",
                "0 rows violate it",
                f"{self.repeated} violate it",
                holds=self.repeated == 0,
            ),
            check_exposure("bucket", exposure),
            *further,
        ]
        if "l" in parameters:
            checks.append(
                Check(
                    "l-diversity: frequency in bucket <= 1/l",
                    f"l = {parameters['l']}",
                    f"{exposure['not_diverse']} pairs exceed it, largest frequency"
                    f" {exposure['frequency']:.6g}",
                    holds=exposure["not_diverse"] == 0,
                )
            )
        else:
            checks.append(
                Check(
                    "no bucket exceeds the largest size allowed",
                    f"at most {parameters['max_bucket_size']} records",
                    f"largest has {max(sizes, default=0)}",
                    holds=max(sizes, default=0) <= parameters["max_bucket_size"],
                )
            )
        checks.append(
            Check(
                "people whose sensitive value is certain, in buckets of one value",
                "thresholds of 1 allow them",
                f"{self.certain} people",
                holds=True,
            )
        )
        if "l" in parameters:
            unbounded = 0.0
        else:
            unbounded = exposure["unbounded"] / max(exposure["records"], 1)
            checks.append(report_unbounded(exposure))
        checks.append(check_waiting(parameters))
        return Examination(
            checks,
            {
                "records": sat.records,
                "certain_records": self.certain,
                "unbounded_share": unbounded,
                "sensitive_values": exposure["values"],
                "buckets": sum(sizes.values()),
                **{f"buckets_of_size_{size}": n for size, n in sizes.items()},
                "loss": loss,
                "msbs": loss / (sat.records - 1) if sat.records > 1 else 0.0,
                "largest_frequency": exposure["frequency"],
                "largest_frequency_ratio": exposure["ratio"],
            },
        )
