"""The demo's data, which ships with the package."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from kanon_db.interfaces import cli


def test_saved_data_is_the_survey(tmp_path: Path) -> None:
    """The same people as in the data set of statsmodels, that it was made from."""
    path = tmp_path / "fair.csv"
    assert CliRunner().invoke(cli.main, ["demo", "--save", str(path)]).exit_code == 0
    fair = pytest.importorskip("statsmodels.datasets.fair")
    expected = fair.load_pandas().data
    found = pd.read_csv(path)
    assert len(found) == 6366
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
