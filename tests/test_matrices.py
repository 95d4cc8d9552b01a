from __future__ import annotations

from itertools import product

import pytest

from tests.support.matrices import sample

pytest_plugins = ["pytester"]


def test_a_sample_has_each_word_and_is_small() -> None:
    names = ["-".join(words) for words in product("abcdef", ("1.20.0", "2.3.0"), ("heap", "rocksdb"))]
    names = [f"test_it[{name}]" for name in names]
    taken = sample(names)
    assert len(taken) == 6
    assert taken == sample(reversed(names))
    said = "".join(taken)
    assert all(word in said for word in ("[a", "[f", "1.20.0", "2.3.0", "heap", "rocksdb"))


def test_a_sample_may_be_smaller_than_what_has_each_word() -> None:
    names = [f"test_it[{one}]" for one in "abcdef"]
    assert len(sample(names)) == 6
    assert len(sample(names, most=2)) == 2


def test_tests_of_the_same_cases_have_the_same_sample() -> None:
    cases = ["-".join(words) for words in product("abcdef", ("1.20.0", "2.3.0"), ("heap", "rocksdb"))]
    one, other = (sample(f"{test}[{case}]" for case in cases) for test in ("test_it", "test_another"))
    assert {name.replace("test_it", "test_another") for name in one} == other


def test_a_plain_run_has_the_sample_and_all_has_everything(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.conftest import pytest_addoption, pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers = full\n matrix(most)\n")
    path = pytester.makepyfile(
        """
        import pytest
        @pytest.mark.matrix
        @pytest.mark.parametrize("a", range(5))
        @pytest.mark.parametrize("b", ["x", "y"])
        def test_matrix(a, b): pass
        @pytest.mark.matrix(most=2)
        @pytest.mark.parametrize("a", range(5))
        def test_few(a): pass
        @pytest.mark.full
        def test_full(): pass
        def test_plain(): pass
        """
    )
    pytester.runpytest().assert_outcomes(passed=8, deselected=9)
    pytester.runpytest("--all").assert_outcomes(passed=17)
    pytester.runpytest(f"{path}::test_full").assert_outcomes(passed=1)
    pytester.runpytest("-k", "full").assert_outcomes(passed=1, deselected=16)


def test_a_fast_run_leaves_out_what_is_slow_and_has_two_cases_of_a_part(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.conftest import pytest_addoption, pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers = airflow\n flink\n part\n slow\n spark\n")
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.part
        @pytest.mark.parametrize("a", range(5))
        def test_part(a): pass
        @pytest.mark.slow
        def test_slow(): pass
        @pytest.mark.spark
        def test_spark(): pass
        def test_plain(): pass
        """
    )
    pytester.runpytest("--fast").assert_outcomes(passed=3, deselected=5)
    pytester.runpytest().assert_outcomes(passed=8)
