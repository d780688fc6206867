"""One issue of a problem as requests to the engines, one for each way its samples begin, and one group again. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.engine import GenerateRequest
from pipeline.rewards import Steering
from pipeline.traces import Group, Marks, Trace, VersionSpan


@dataclass(frozen=True)
class Variant:
    """Samples of one issue that begin alike: `places` are their indices in the group; `forced` tokens, which read
    `forced_text`, stand at the start of their responses without having been sampled."""

    request: GenerateRequest
    places: tuple[int, ...]
    forced: int = 0
    forced_text: str = ""


@dataclass(frozen=True)
class Issue:
    """What one issue asks of the engines. `starts[i]` is how sample i begins."""

    issue_id: str
    starts: tuple[Steering, ...]
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Tag:
    """The end-of-think tag as token ids and text."""

    ids: tuple[int, ...]
    text: str

    @classmethod
    def of(cls, marks: Marks) -> "Tag":
        """The tag that `marks` cut at; its one id, or where it is not one token those that spell it."""
        if marks.think_end_id is not None:
            return cls((marks.think_end_id,), marks.think_end)
        assert marks.tokenizer is not None, "a tag of several tokens needs the tokenizer"
        return cls(tuple(marks.tokenizer.encode(marks.think_end, add_special_tokens=False)), marks.think_end)


def make_issue(
    plain: GenerateRequest, starts: Sequence[Steering], prompt_ids: Mapping[str, tuple[int, ...]], tag: Tag
) -> Issue:
    """Cuts the request for the whole group, `plain`, into one for each distinct way to begin.

    `prompt_ids` are the prompt's ids [P] for every note. Samples that are made to start with the tag get it as the end
    of their prompt and have as many tokens fewer to make. The first variant keeps the issue's id; seeds run on, so that
    no two samples of the issue share one.
    """
    places: dict[tuple[str, bool], list[int]] = {}
    for place, start in enumerate(starts):
        places.setdefault((start.note, start.no_think), []).append(place)
    variants: list[Variant] = []
    seed = plain.seed
    for (note, no_think), mine in places.items():
        forced = tag.ids if no_think else ()
        request = replace(
            plain,
            issue_id=f"{plain.issue_id}#{len(variants)}" if variants else plain.issue_id,
            prompt_ids=(*prompt_ids[note], *forced),
            n=len(mine),
            seed=seed,
            max_new_tokens=plain.max_new_tokens - len(forced),
        )
        variants.append(Variant(request, tuple(mine), len(forced), tag.text if no_think else ""))
        seed += len(mine)
    return Issue(plain.issue_id, tuple(starts), tuple(variants))


def requests_of(issues: Sequence[Issue]) -> list[GenerateRequest]:
    """All requests, the first variants of all issues before the second ones: engines are dealt them in turn, and each
    should get its share of the long samples."""
    ordered = [(index, variant.request) for issue in issues for index, variant in enumerate(issue.variants)]
    return [request for _, request in sorted(ordered, key=lambda pair: pair[0])]


def merge(issue: Issue, groups: Mapping[str, Group]) -> Group:
    """The issue's group, its samples in order, from the engines' groups by request id. Forced tokens are part of the
    responses again, with log-probability 0: nothing else could have stood there."""
    traces: dict[int, Trace] = {}
    for variant in issue.variants:
        answered = groups[variant.request.issue_id].traces
        for place, trace in zip(variant.places, answered, strict=True):
            traces[place] = replace(_with_forced(trace, variant), sample=place)
    problem_id = issue.variants[0].request.problem_id
    return Group(issue.issue_id, problem_id, tuple(traces[place] for place in sorted(traces)))


def _with_forced(trace: Trace, variant: Variant) -> Trace:
    """Moves forced tokens from the end of the prompt to the start of the response. They go with the weights that made
    the first token after them."""
    forced = variant.forced
    if not forced:
        return trace
    spans = [VersionSpan(span.version, span.start + forced, span.end + forced) for span in trace.versions]
    spans[:1] = [replace(span, start=0) for span in spans[:1]]
    return replace(
        trace,
        prompt_ids=trace.prompt_ids[:-forced],
        token_ids=(*trace.prompt_ids[-forced:], *trace.token_ids),
        logprobs=(0.0,) * forced + trace.logprobs,
        versions=tuple(spans),
        text=variant.forced_text + trace.text,
    )
