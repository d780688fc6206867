"""What prompts share and how far apart, by hand."""

from serve.observation.prefixes import prefix_figures

A, B, C = [1] * 8, [2] * 8, [3] * 8


def tail(number):
    return [100 + number] * 4


def test_prompts_that_share_nothing():
    assert prefix_figures([A, B, C], [1, 1, 1], 4) == {"shared_prefix_share": 0.0}
    assert prefix_figures([], [], 4) == {"shared_prefix_share": 0.0}


def test_prefixes_in_turns():
    prompts = [p + tail(i) for i, p in enumerate([A, B, A, B])]
    # Of 48 tokens 16 began as before; between two uses lie the other prompt (12) and two replies (5 each).
    found = prefix_figures(prompts, [5, 5, 5, 5], 4)
    assert found == {"shared_prefix_share": round(16 / 48, 4), "reuse_distance_tokens": 12 + 10}


def test_a_prompt_that_comes_again_at_once():
    found = prefix_figures([A + tail(0), A + tail(0)], [3, 3], 4)
    assert found == {"shared_prefix_share": 0.5, "reuse_distance_tokens": 3}


def test_what_is_used_often_is_one_thing_to_remember():
    prompts = [A, B, B, B, A]
    assert prefix_figures(prompts, [0] * 5, 4)["reuse_distance_tokens"] == 1  # three distances: 0 (two), 8 (one)


def test_a_common_middle_is_no_common_beginning():
    assert prefix_figures([A + B, C + B], [0, 0], 4)["shared_prefix_share"] == 0.0
