"""Draw a synthetic table with OpenDP; ``differential_privacy`` runs it in another environment.

Arguments: rho of the zero-concentrated budget, file with the codes (one column per attribute, the
sensitive one last), file for the synthetic codes.
"""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import opendp.prelude as dp
import polars as pl

MODEL_SIZE = 8.0  # MB
ROUNDS = 16  # a power of two: then the shares of the budget add up to it exactly


def main() -> None:
    """Fit a graphical model to noisy marginals, and draw records from it."""
    rho, source, target = float(sys.argv[1]), sys.argv[2], sys.argv[3]
    dp.enable_features("contrib")
    codes = np.load(source)
    names = [f"column {j}" for j in range(codes.shape[1])]
    context = dp.Context.compositor(
        data=pl.LazyFrame(dict(zip(names, codes.T, strict=True))),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
    )
    table = (
        context.query(rho=rho)
        .select(*names)
        .contingency_table(
            keys={name: list(range(codes[:, j].max() + 1)) for j, name in enumerate(names)},
            algorithm=_aim(names),
        )
        .release()
    )
    # OpenDP adds a missing value to every attribute, which no query asks for.
    np.save(target, table.synthesize().drop_nulls().to_numpy().astype(np.int32))


def _aim(names: list[str]) -> dp.mbi.AIM:
    """Ask for the sensitive attribute with every pair of quasi-identifiers, as the queries do."""
    queries = [dp.mbi.Count(by=(*pair, names[-1])) for pair in combinations(names[:-1], 2)]
    return dp.mbi.AIM(queries=queries, max_size=MODEL_SIZE, rounds=ROUNDS)


if __name__ == "__main__":
    main()
