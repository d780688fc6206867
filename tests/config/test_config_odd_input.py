"""Odd configs end in one sentence, whatever the library underneath would have raised."""

import pytest

from pipeline.config import UserError, load_config, resolve_path, resolve_paths


@pytest.mark.parametrize("value", ["!!int abc", "!!float x", "!!bool x", "!!timestamp x", "9" * 5000])
def test_a_value_that_is_not_what_its_tag_says(value):
    with pytest.raises(UserError, match="not valid YAML: a value is not of the kind it is marked as"):
        load_config(None, [f"run.steps={value}"])


@pytest.mark.parametrize("text", ["run: &a [*a]", "run: &a {name: *a}", "run: " + "[" * 60 + "]" * 60, "[" * 5000])
def test_data_that_holds_itself_or_nests_too_deep(text, tmp_path):
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(UserError, match="nests deeper than 50 levels, or holds itself"):
        load_config(str(tmp_path / "odd.yaml"))


@pytest.mark.parametrize("path", ["~no-such-user/x", "a\0b", "x" * 5000])
def test_what_cannot_be_a_path(path):
    with pytest.raises(UserError, match="cannot be a path"):
        resolve_path(path)


@pytest.mark.parametrize("uri", ["~no-such-user/x", "a\0b"])
def test_where_no_results_can_go(uri):
    cfg = load_config(None)
    with pytest.raises(UserError, match="storage.uri: "):
        resolve_paths(cfg.model_copy(update={"storage": cfg.storage.model_copy(update={"uri": uri})}))


@pytest.mark.parametrize("override", ["run.name=" + "a" * 300, "rollout.group_size=1000000000000"])
def test_sizes_that_no_machine_holds(override):
    with pytest.raises(UserError, match="override"):
        load_config(None, [override])
