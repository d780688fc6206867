import math

import pytest

from pipeline.tracking.catalogue import METRICS, SHORT, CatalogueError, check, for_source, lookup, metric_name


def test_names_are_unique_and_no_name_is_a_folder_of_another():
    assert len(METRICS) == len(SHORT)
    assert not set(METRICS) & set(SHORT)
    groups = {name.split("/")[0] for name in METRICS}
    assert not groups & set(METRICS)
    assert all(name.count("/") == 1 and metric.description and metric.unit for name, metric in METRICS.items())


def test_short_and_full_names_mean_the_same():
    assert metric_name("kappa") == metric_name("curriculum/kappa") == "curriculum/kappa"
    assert lookup("eval_accuracy").name == "eval/accuracy"


def test_a_typo_names_the_nearest():
    with pytest.raises(CatalogueError, match="acuracy.*did you mean 'accuracy'"):
        check({"acuracy": 0.5})


def test_a_source_has_its_own_group():
    assert for_source("accuracy", "chain_sum") == "rollout.chain_sum/accuracy"
    assert for_source("eval_accuracy", "a b/c.d") == "eval.a_b_c_d/accuracy"
    assert check({"rollout.chain_sum/accuracy": 1}) == ({"rollout.chain_sum/accuracy": 1.0}, {})
    with pytest.raises(CatalogueError, match="not kept for each source"):
        for_source("lr", "chain_sum")
    for bad in ("train.chain_sum/lr", "rollout./accuracy", "rollout.a.b/accuracy"):
        with pytest.raises(CatalogueError):
            check({bad: 1})


def test_a_value_that_is_not_finite_stops_unless_it_is_itself_news():
    with pytest.raises(CatalogueError, match="rollout/accuracy' is nan"):
        check({"accuracy": math.nan})
    finite, strange = check({"loss": math.nan, "grad_norm": math.inf, "lr": 1e-6})
    assert finite == {"train/lr": 1e-6} and strange.keys() == {"train/loss", "train/grad_norm"}


def test_one_metric_under_two_names_and_no_number_are_refused():
    with pytest.raises(CatalogueError, match="given twice"):
        check({"kappa": 0.1, "curriculum/kappa": 0.2})
    with pytest.raises(CatalogueError, match="no number"):
        check({"kappa": "high"})
