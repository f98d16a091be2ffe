"""Break the package on purpose, one fault at a time, and see whether `make test` notices.

    .venv/bin/python scripts/mutations.py [WORD …]

Each fault is one that has slipped into software like this. A checkout is copied, one line of it is
changed, and the tests that ought to notice are run there; a fault that they let pass is printed
as such, and makes the command fail. With words, only faults whose name has one of them are tried.
Faults are found by their text, wherever a module has been moved to: one that is no longer there,
or there twice, is an error.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.promises import is_short  # noqa: E402


class Mutation(NamedTuple):
    """One fault."""

    name: str
    right: str
    """Text that the package, with its SQL, has once."""
    wrong: str
    tests: tuple[str, ...]
    """The modules or tests of `make test` that must notice, below the folder of tests."""


MUTATIONS: Final = (
    Mutation(
        "no shuffle",
        "places[left], places[other] = places[other], places[left]",
        "places[left], places[left] = places[left], places[left]",
        ("unit/ground/test_shuffling.py", "attacks/test_row_order.py"),
    ),
    Mutation(
        "no shuffle of who has which value of a bucket",
        "        shuffled = random.permutation(keys.size)\n",
        "        shuffled = np.arange(keys.size)\n",
        ("attacks/test_row_order.py", "attacks/test_posterior.py", "property/test_cells.py"),
    ),
    Mutation(
        "k - 1: classes of k - 1 records",
        "_cut_all(table, state, parts, k, cut == ",
        "_cut_all(table, state, parts, k - 1, cut == ",
        ("unit/generalization/test_heuristics.py", "attacks/test_posterior.py"),
    ),
    Mutation(
        "k - 1: the check of classes",
        "int((sizes < k).sum())\n",
        "int((sizes < k - 1).sum())\n",
        (
            "integration/test_battery.py::test_battery[generalized-mondrian-3-check_one_record_short]",
        ),
    ),
    Mutation(
        "a threshold off by one occurrence",
        "limits = numerators * columns // denominators\n",
        "limits = numerators * columns // denominators + 1\n",
        ("unit/bucketization/test_privacy.py",),
    ),
    Mutation(
        "lower bound off by one",
        "variance, np.maximum(q + s - size, 0), np",
        "variance, np.maximum(q + s - size + 1, 0), np",
        ("corpus/test_corpus.py",),
    ),
    Mutation(
        "upper bound off by one",
        "np.minimum(q, s)])\n",
        "np.minimum(q, s - 1)])\n",
        ("corpus/test_corpus.py",),
    ),
    Mutation(
        "the estimator off by one record",
        "expected = q * s / size\n",
        "expected = (q * s + 1) / size\n",
        ("corpus/test_corpus.py",),
    ),
    Mutation(
        "a check that always holds: every record once",
        "holds=qit.records == sat.records == records,",
        "holds=True,",
        ("attacks/test_tampering.py",),
    ),
    Mutation(
        "a check that always holds: SAT counts each value once",
        "holds=self.repeated == 0,",
        "holds=True,",
        ("attacks/test_tampering.py",),
    ),
    Mutation(
        "a check that always holds: k matches",
        "holds=min(published, originals) >= job.request.k,",
        "holds=True,",
        (
            "integration/test_battery.py::test_battery[freeform-k_concealment-3-check_found_for_fewer]",
        ),
    ),
    Mutation(
        "a constant read as text",
        'value = f"{self._parameter(constant.text)}::text::{constant.type.name}"',
        'value = f"{self._parameter(constant.text)}::text"',
        ("corpus/test_corpus.py",),
    ),
    Mutation(
        "<= for <",
        """"<": "numrange(NULL, {0}, '()')\"""",
        """"<": "numrange(NULL, {0}, '(]')\"""",
        ("integration/test_cell_answers.py",),
    ),
    Mutation(
        "< for <=, between two columns of ranges",
        '"<=": a_low <= b_high,',
        '"<=": a_low < b_high,',
        ("integration/test_cell_answers.py",),
    ),
    Mutation(
        "a swapped column",
        "columns = dict(zip(tables.quasi_identifiers, named, strict=True))",
        "columns = dict(zip(tables.quasi_identifiers, reversed(named), strict=True))",
        ("integration/test_coded.py", "integration/test_in_parts.py"),
    ),
    Mutation(
        "the highest risk of identification is the least",
        "highest=1 / float(people[n > 0].min()),",
        "highest=1 / float(people[n > 0].max()),",
        ("unit/metrics/test_disclosure_risk.py::test_risks_are_those_of_each_record",),
    ),
    Mutation(
        "k + 1: records at risk",
        "at_risk=float(f[people < k] @ n[people < k])",
        "at_risk=float(f[people <= k] @ n[people <= k])",
        ("unit/metrics/test_disclosure_risk.py::test_risks_are_those_of_each_record",),
    ),
    Mutation(
        "uniqueness counts pairs",
        "return float(n[f == 1].sum()) / n_records",
        "return float(n[f <= 2].sum()) / n_records",
        ("unit/metrics/test_disclosure_risk.py::test_risks_are_those_of_each_record",),
    ),
    Mutation(
        "a population smaller than its sample is let in",
        "if not np.all(people >= f):",
        "if False and not np.all(people >= f):",
        ("unit/metrics/test_disclosure_risk.py::test_who_is_not_in_the_population_is_refused",),
    ),
    Mutation(
        "m - 1: signatures of m - 1 values",
        "bad = sum(len(s) < m or",
        "bad = sum(len(s) < m - 1 or",
        ("unit/releases/test_releases.py::test_what_cannot_be_refreshed_is_refused",),
    ),
    Mutation(
        "the cap is not applied to own thresholds",
        "return own if own is None or self.cap is None else min(own, self.cap)",
        "return own",
        ("unit/bucketization/test_privacy.py",),
    ),
    Mutation(
        "a threshold above 1 of a value is let in",
        "not 0 < threshold <= 1 for",
        "not 0 < threshold for",
        ("unit/bucketization/test_privacy.py",),
    ),
    Mutation(
        "a remedy that does not suffice",
        "raise cap to {round_up(most)}",
        "raise cap to 0",
        ("unit/bucketization/test_privacy.py",),
    ),
    Mutation(
        "a negative theta is let in",
        "self.theta is None or self.theta >= 0",
        "self.theta is None or self.theta >= -1",
        ("unit/bucketization/test_privacy.py",),
    ),
    Mutation(
        "l - 1: eligibility for buckets of l",
        "if largest * l > n_records:",
        "if largest * (l - 1) > n_records:",
        ("unit/bucketization/test_methods.py::test_anatomy_refuses",),
    ),
    Mutation(
        "rights: anybody replaces and drops what others published",
        "WHERE a.grantee = role AND a.grantor = c.relowner AND a.is_grantable)\n"
        "    -- Where nothing",
        "WHERE a.grantor = c.relowner AND a.is_grantable)\n    -- Where nothing",
        ("privileges/test_matrix.py", "attacks/test_errands.py"),
    ),
    Mutation(
        "rights: a source that the publisher cannot read",
        "WHERE has_column_privilege(role, _relation, name, 'SELECT') IS NOT TRUE) THEN",
        "WHERE has_column_privilege(role, _relation, name, 'SELECT') IS NULL) THEN",
        ("integration/test_registration.py", "attacks/test_errands.py"),
    ),
    Mutation(
        "rights: the description of somebody else's source",
        "AND s.registered_by <> role AND NOT pg_has_role(role, c.relowner, 'USAGE');",
        "AND s.registered_by = role AND NOT pg_has_role(role, c.relowner, 'USAGE');",
        ("attacks/test_errands.py", "attacks/test_hostile_source.py"),
    ),
    Mutation(
        "rights: a worker's login is nobody",
        "CROSS JOIN unnest(ARRAY[l.oid, (SELECT a.oid FROM pg_roles AS a",
        "CROSS JOIN unnest(ARRAY[NULL, (SELECT a.oid FROM pg_roles AS a",
        ("attacks/test_combined_readers.py", "attacks/test_several_releases.py"),
    ),
    Mutation(
        "rights: a budget is everybody's",
        "AND pg_has_role(caller, b.role, 'USAGE')))",
        "AND pg_has_role(b.role, b.role, 'USAGE')))",
        ("attacks/test_model_budgets.py", "attacks/test_model.py"),
    ),
    Mutation(
        "a budget has one answer more",
        "_left := _budget.answers - kanon.counted(_budget) - n;",
        "_left := _budget.answers - kanon.counted(_budget) - n + 1;",
        ("attacks/test_model_budgets.py",),
    ),
    Mutation(
        "a risk that nobody has accepted: what is gone",
        "IF FOUND AND NOT _warns AND coalesce(btrim(_reason), '') = '' THEN",
        "IF FOUND AND NOT _warns AND _reason IS NOT NULL THEN",
        ("attacks/test_several_releases.py", "attacks/test_release_history.py"),
    ),
    Mutation(
        "doctor sees nothing amiss in rights of strangers",
        'return _judge("rights in kanon", roles, is_ok=not rows)',
        'return _judge("rights in kanon", roles, is_ok=True)',
        ("migration/test_install.py",),
    ),
    Mutation(
        "doctor sees no catalog of another state",
        'yield _judge("catalog", state, is_ok=not behind)',
        'yield _judge("catalog", state, is_ok=True)',
        ("migration/test_install.py", "migration/test_restore.py"),
    ),
    Mutation(
        "bounds of all but those that match neither are swapped",
        "n_records - upper, n_records - lower)",
        "n_records - lower, n_records - upper)",
        ("corpus/test_corpus.py", "unit/query/test_answers.py"),
    ),
    Mutation(
        "a guarantee that leaves out whom it does not cover",
        'return "; ".join([self.promise, *self.conditions, *kept])',
        'return "; ".join([self.promise, *kept])',
        ("docs/test_guarantees.py", "attacks/test_promises.py"),
    ),
    Mutation(
        "a guarantee that forgets the threshold of 1",
        'return f"the threshold is 1 for {share:.1%} of the records" if share else ""',
        'return ""',
        ("attacks/test_thresholds.py", "docs/test_guarantees.py"),
    ),
    Mutation(
        "a likely range beyond what is certain",
        "least if low is None else min(max(least, low), estimate),",
        "least if low is None else min(least, estimate),",
        ("unit/query/test_answers.py", "corpus/test_corpus.py"),
    ),
    Mutation(
        "a decimal sign is guessed where both are possible",
        "if kinds and not kinds[0].option:",
        "if kinds:",
        ("acceptance/test_messy_files.py", "integration/test_load.py"),
    ),
    Mutation(
        "the seed of a draw is anybody's",
        'seed = bytes.fromhex(run_errand(session, "seed", **given))',
        "seed = bytes(32)",
        ("attacks/test_drafts.py", "attacks/test_replay.py"),
    ),
    Mutation(
        "a check that always holds: suppressed cells are NULL",
        "holds=counted.n_shown == 0,",
        "holds=True,",
        ("attacks/test_tampering.py",),
    ),
    Mutation(
        "a measure of somebody else's table holds",
        "return RelationMeasure(measure, value, bound, classes, records, holds=classes == 0)",
        "return RelationMeasure(measure, value, bound, classes, records, holds=True)",
        ("integration/test_relation_check.py",),
    ),
    Mutation(
        "a check that always holds: only patterns that were asked for",
        "            holds=not strange,\n",
        "            holds=True,\n",
        ("attacks/test_tampering.py", "integration/test_freeform.py"),
    ),
    Mutation(
        "a check that always holds: suppressed rows and those left out are all records",
        "holds=published + publication.left_out == records,",
        "holds=True,",
        ("attacks/test_tampering.py",),
    ),
    Mutation(
        "a check that always holds: every record of freeform rows once",
        "holds=n_rows == publication.records,",
        "holds=True,",
        ("attacks/test_tampering.py", "integration/test_freeform.py"),
    ),
    Mutation(
        "a check that always holds: the columns of rows",
        "holds=list(columns) == list(view.columns),",
        "holds=True,",
        ("attacks/test_tampering.py", "attacks/test_hostile_entries.py"),
    ),
)
"""Faults, each with the text that is changed and the tests that must notice."""


def place_of(mutation: Mutation, checkout: Path) -> Path:
    """Find the one file, of the package or of its SQL, that has the text of a fault.

    Raises
    ------
    ValueError
        When it is in none, or more than once.
    """
    texts = texts_of(checkout)
    found = [path for path, text in texts.items() if mutation.right in text]
    if len(found) != 1 or texts[found[0]].count(mutation.right) != 1:
        raise ValueError(f"{mutation.name}: the text must be there once: {mutation.right!r}")
    return found[0]


@functools.cache
def texts_of(checkout: Path) -> dict[Path, str]:
    """Read what is installed of a checkout, as it was before any fault."""
    paths = [*(checkout / "kanon_db").rglob("*.py"), *(checkout / "sql").rglob("*.sql")]
    return {path: path.read_text(encoding="utf-8") for path in paths}


def is_noticed(mutation: Mutation, copy: Path) -> str:
    """Make one fault in a copy of the checkout; return the test that noticed, or nothing."""
    path = place_of(mutation, copy)
    before, stat = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(before.replace(mutation.right, mutation.wrong), encoding="utf-8")
    try:
        noticed = first_failure([f"tests/{test}" for test in mutation.tests], copy)
    finally:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    if noticed and first_failure([noticed], copy):
        raise RuntimeError(f"{mutation.name}: {noticed} fails without the fault, too")
    return noticed


def first_failure(tests: list[str], copy: Path) -> str:
    """Run tests in a copy of the checkout; return the first that fails or crashes, or nothing.

    Raises
    ------
    RuntimeError
        When they cannot be run.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not long", "-p", "no:randomly", "-p",
         "no:cacheprovider", *tests],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    has_crashed = ended.returncode < 0  # compiled code that leaves its arrays may do so
    if ended.returncode not in (0, 1) and not has_crashed:
        raise RuntimeError(f"pytest failed:\n{ended.stdout[-2000:]}")
    lines = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if has_crashed and not lines:
        return tests[0]
    return lines[0].split(" - ")[0].split(" ", 1)[1] if lines else ""


def main() -> int:
    """Try all faults; return how many were not noticed."""
    wanted = [m for m in MUTATIONS if not sys.argv[1:] or any(w in m.name for w in sys.argv[1:])]
    for mutation in wanted:
        place_of(mutation, ROOT)
        long = [test for test in mutation.tests if not is_short(test.partition("[")[0])]
        if long:
            raise ValueError(f"{mutation.name}: `make test` does not run {', '.join(long)}")
    missed = 0
    print("| fault | noticed by | seconds |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="kanon-mutations-") as folder:
        copy = Path(folder, "checkout")
        # Compiled code comes along: it is valid for files of the same time.
        skipped = shutil.ignore_patterns(".git", ".venv", ".hypothesis", ".*_cache", "site")
        shutil.copytree(ROOT, copy, ignore=skipped)
        Path(folder).chmod(0o755)
        for mutation in wanted:
            start = time.monotonic()
            noticed = is_noticed(mutation, copy)
            missed += not noticed
            told = f"`{noticed}`" if noticed else "**nothing**"
            print(f"| {mutation.name} | {told} | {time.monotonic() - start:.0f} |", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
