"""vLLM's scheduler with a draft length chosen anew each step. The only file here that imports vLLM (0.32).

Named by `scheduler_cls`; see `settings.engine_options`. vLLM reads the length for a step from its batch-size table
(`dynamic_sd_lookup`) inside `schedule()`, hands it to the drafter after the target's pass, and verifies the drafts in
the next step. The scheduler interface is not public: a contract test holds the names used here.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request

from pipeline.config import UserError
from serve.speculation.controller import Live, Order, Verified
from serve.speculation.figures import publish, write_figures
from serve.speculation.settings import KEY, Settings, cap_of

SAVE_EVERY = 200  # settled steps


class _Flight:
    """A scheduled step: the order whose drafts it verifies, for whom, and whether anything else ran in it."""

    def __init__(self, output: SchedulerOutput, order: Order | None, drafted: dict[str, int], caps: dict) -> None:
        self.output, self.order, self.drafted, self.caps = output, order, drafted, caps
        self.pure = len(drafted) == len(output.num_scheduled_tokens)
        self.began = perf_counter()


class AdaptiveScheduler(Scheduler):
    """Asks the policy each step, cuts drafts to the order and to requests' caps, and reports what was accepted.

    A subclass of the synchronous scheduler: vLLM then turns asynchronous scheduling off.
    """

    def __init__(self, vllm_config: Any, *args: Any, **keys: Any) -> None:
        super().__init__(vllm_config, *args, **keys)
        if self.dynamic_sd_lookup is None:
            raise UserError(
                "adaptive draft lengths need num_speculative_tokens_per_batch_size (see engine_options), "
                "which vLLM drops when data_parallel_size is above 1; set that to 1"
            )
        if vllm_config.parallel_config.pipeline_parallel_size > 1:
            raise UserError("adaptive draft lengths do not work with pipeline_parallel_size above 1; set it to 1")
        self.speculation = Settings.from_config(vllm_config.additional_config.get(KEY, {}))
        self.controller = self.speculation.controller(self.num_spec_tokens)
        self.faults = {"bad_caps": 0, "lost_flights": 0, "save_errors": 0}
        self._order: Order | None = None  # whose drafts the next step verifies
        self._drafting: set[str] = set()  # requests that the last step ran, and so drafted for
        self._flights: deque[_Flight] = deque()
        self._read: dict[str, tuple[int, bool]] = {}  # output tokens searched, and whether the thinking had ended
        publish("speculation_policy_orders", lambda: self.controller.by_length, "k")
        publish("speculation_policy", lambda: self.controller.counters | self.controller.policy.counters)
        publish("speculation_policy_faults", lambda: self.faults)

    def schedule(self, *args: Any, **keys: Any) -> SchedulerOutput:
        if not self.running and not self.waiting:
            return super().schedule(*args, **keys)
        live = [Live(self._phase(request), self._cap(request)) for request in self._decoding()]
        order = self.controller.order(live)
        self.dynamic_sd_lookup[1:] = [order.k] * (len(self.dynamic_sd_lookup) - 1)
        output = super().schedule(*args, **keys)
        if output.num_scheduled_tokens:
            drafted = dict(self._verified(output))
            caps = {name: self._cap(self.requests[name]) for name in drafted}
            self._flights.append(_Flight(output, self._order, drafted, caps))
            self._order, self._drafting = order, set(output.num_scheduled_tokens)
        return output

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        names = draft_token_ids.req_ids
        caps = [self._cap(self.requests[name]) if name in self.requests else None for name in names]
        drafts = self.controller.cut(self._order, draft_token_ids.draft_token_ids, caps)
        super().update_draft_token_ids(replace(draft_token_ids, draft_token_ids=drafts))

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput) -> Any:
        flight = self._landed(scheduler_output)
        if flight is not None and flight.order is not None:
            seconds = perf_counter() - flight.began if flight.pure else None
            self.controller.settle(flight.order, list(_outcomes(flight, model_runner_output)), seconds)
            if self.controller.counters["settled"] % SAVE_EVERY == 0:
                self._save()
        return super().update_from_output(scheduler_output, model_runner_output)

    def shutdown(self) -> None:
        self._save()
        super().shutdown()

    def _save(self) -> None:
        """Keeps what the policy learned, and the counters beside its log: at the end, and now and then, as a replica
        may be ended without notice."""
        try:
            self.speculation.save(self.controller)
            if self.speculation.log is not None:
                write_figures(f"{self.speculation.log}.figures.json")
        except OSError:  # a full disk must not stop the engine
            self.faults["save_errors"] += 1

    def _landed(self, output: SchedulerOutput) -> _Flight | None:
        """The flight of a step's output; flights before it never came back and are counted."""
        if not output.num_scheduled_tokens:
            return None
        while self._flights:
            flight = self._flights.popleft()
            if flight.output is output:
                return flight
            self.faults["lost_flights"] += 1
        self.faults["lost_flights"] += 1
        return None

    def _decoding(self) -> list[Request]:
        return [request for request in self.running if request.num_output_tokens > 0]

    def _verified(self, output: SchedulerOutput) -> Iterator[tuple[str, int]]:
        """Requests for which the last order drafted and that this step decodes, with their draft tokens. One that
        recomputes its text after a preemption has more tokens scheduled and is not among them."""
        for name, scheduled in output.num_scheduled_tokens.items():
            drafted = len(output.scheduled_spec_decode_tokens.get(name, ()))
            if name in self._drafting and self.requests[name].num_output_tokens > 0 and scheduled == 1 + drafted:
                yield name, drafted

    def _cap(self, request: Request) -> int | None:
        params = request.sampling_params
        cap, usable = cap_of(params.extra_args if params is not None else None)
        self.faults["bad_caps"] += not usable
        return cap

    def _phase(self, request: Request) -> str:
        """`reasoning` until the token that ends the thinking is among the request's output."""
        end = self.speculation.end_of_thinking
        if end is None:
            return "answer"
        read, ended = self._read.get(request.request_id, (0, False))
        if not ended:
            ended = end in list(request.output_token_ids[read:])
            self._read[request.request_id] = request.num_output_tokens, ended
        if len(self._read) > 4 * max(64, len(self.requests)):
            self._read = {name: found for name, found in self._read.items() if name in self.requests}
        return "answer" if ended else "reasoning"


def _outcomes(flight: _Flight, output: ModelRunnerOutput) -> Iterator[Verified]:
    for name, drafted in flight.drafted.items():
        index = output.req_id_to_index.get(name)
        emitted = len(output.sampled_token_ids[index]) if index is not None and output.sampled_token_ids else 0
        if emitted:
            yield Verified(emitted, drafted, flight.caps[name])
