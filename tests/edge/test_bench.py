"""The benchmark's answer comes from its formula, and one changed row is seen."""

import pytest

from claimlib.testing import bench


@pytest.mark.long
@pytest.mark.parametrize(("flip", "differing"), [(False, 0), (True, 1)])
def test_the_result_is_checked_against_the_formula(spark, tmp_path, flip, differing):
    document = bench.run(spark, str(tmp_path / "store"), 2000, flip=flip)
    assert document["streams_that_differ"] == differing
    assert document["counts"]["claimed"] > 900
    assert {"init", "make rows", "page, dry run", "sweep"} == document["seconds"].keys()
    assert document["peak_mib"]["jvm"] > 0
