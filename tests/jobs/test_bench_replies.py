"""The checker against servers that break one promise each; the whole path from HTTP to the named fault."""

import asyncio
import json

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from jobs._bench_load import Load
from jobs._bench_replies import Confirmed, Context, Fault, Reply, count, declared, faults
from jobs._bench_requests import Shape, body, plan, split
from jobs._bench_stats import divided, paired, percentile, spread

MARK, OTHER = "v3-0123abcd", "v4-89abcdef"
CONTEXT = Context(frozenset({MARK, OTHER}))
WHOLE, STREAM = Shape(0, "1 + 1", 4, False, 7), Shape(1, "1 + 1", 4, True, 7)


class Server:
    """A well-behaved endpoint, but for what `wrong` names."""

    def __init__(self, **wrong):
        self.wrong = wrong
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.answer, methods=["POST"])])

    async def answer(self, request):
        asked = await request.json()
        if status := self.wrong.get("status"):
            return JSONResponse({"error": {"message": "no"}}, status)
        header = {} if self.wrong.get("no_header") else {"x-policy-version": self.wrong.get("header", MARK)}
        if asked.get("stream"):
            return StreamingResponse(self.events(asked), media_type="text/event-stream", headers=header)
        made = self.chunk(0, MARK) | {"usage": {"completion_tokens": self.wrong.get("usage", 4)}}
        count = self.wrong.get("tokens", asked["max_tokens"])
        made["choices"] = [{"finish_reason": self.wrong.get("finish", "length"), "token_ids": [5] * count}]
        return JSONResponse(made, headers=header)

    def chunk(self, number, mark):
        marks = self.wrong.get("marks")
        mark = marks[min(number, len(marks) - 1)] if marks else mark
        found = {"id": self.wrong.get("id", f"chatcmpl-{MARK}-1")}
        return found if mark is None else found | {"system_fingerprint": mark}

    async def events(self, asked):
        tokens = self.wrong.get("tokens", asked["max_tokens"])
        for number in range(tokens):
            finish = self.wrong.get("finish", "length") if number == tokens - 1 else None
            choice = {"token_ids": [5], "finish_reason": finish}
            yield self.event(self.chunk(number, MARK) | {"choices": [choice]})
        if self.wrong.get("error"):
            yield self.event({"error": {"message": "engine died"}})
        usage = {"completion_tokens": self.wrong.get("usage", 4)}
        yield self.event(self.chunk(tokens, MARK) | {"choices": [], "usage": usage})
        if not self.wrong.get("no_done"):
            yield "data: [DONE]\n\n"

    @staticmethod
    def event(data):
        return f"data: {json.dumps(data)}\n\n"


def asked(transport, shape):
    async def run():
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await Load(http, "http://test", "policy", 1).ask(shape, "quiet")

    return asyncio.run(run())


def judged(shape, context=CONTEXT, **wrong):
    return faults(asked(httpx.ASGITransport(Server(**wrong).app), shape), context)


@pytest.mark.parametrize("shape", [WHOLE, STREAM], ids=["whole", "stream"])
def test_a_good_server_breaks_nothing(shape):
    reply = asked(httpx.ASGITransport(Server().app), shape)
    assert faults(reply, CONTEXT) == {}
    assert (reply.tokens, reply.usage, reply.finish, reply.header) == (4, 4, "length", MARK)
    assert reply.marks == [MARK] and reply.began <= reply.first <= reply.ended


@pytest.mark.parametrize("shape", [WHOLE, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"status": 503}, Fault.FAILED),
        ({"finish": "abort"}, Fault.TRUNCATED),
        ({"finish": None}, Fault.TRUNCATED),
        ({"tokens": 3, "usage": 3}, Fault.TRUNCATED),  # a stop that nobody asked for
        ({"usage": 5}, Fault.MISCOUNTED),
        ({"no_header": True}, Fault.WITHOUT_VERSION),
        ({"marks": [None]}, Fault.WITHOUT_VERSION),
        ({"marks": [OTHER]}, Fault.MIXED_UNMARKED),  # header and body differ
        ({"id": "chatcmpl-1"}, Fault.ID_WITHOUT_MARK),
        ({"header": "v9-00000000", "marks": ["v9-00000000"], "id": "v9-00000000-1"}, Fault.UNKNOWN_VERSION),
    ],
    ids=lambda value: str(value),
)
def test_each_broken_promise_is_caught(shape, wrong, fault):
    assert list(judged(shape, **wrong)) == [fault]


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"no_done": True}, Fault.TRUNCATED),
        ({"error": True}, Fault.FAILED),
        ({"marks": [MARK, MARK, OTHER]}, Fault.MIXED_UNMARKED),
        ({"marks": [MARK, None]}, Fault.WITHOUT_VERSION),
        ({"marks": [f"{MARK}+{OTHER}", MARK]}, Fault.MIXED_UNMARKED),  # a mixture that is taken back
    ],
    ids=lambda value: str(value),
)
def test_what_only_a_stream_can_break(wrong, fault):
    assert list(judged(STREAM, **wrong)) == [fault]


def test_a_declared_mixture_is_fine_and_counted():
    mixed = Server(marks=[MARK, f"{MARK}+{OTHER}"])
    reply = asked(httpx.ASGITransport(mixed.app), STREAM)
    assert faults(reply, CONTEXT) == {} and declared([reply]) == 1
    both = f"{MARK}+{OTHER}"
    assert judged(WHOLE, header=both, marks=[both]) == {}
    assert list(judged(WHOLE, marks=[both], context=Context(frozenset({MARK})))) == [Fault.UNKNOWN_VERSION]


def test_an_older_version_after_confirmation_is_stale():
    late, early = Context(CONTEXT.marks, (Confirmed(0.0, 4),)), Context(CONTEXT.marks, (Confirmed(1e12, 4),))
    assert list(judged(WHOLE, late)) == [Fault.STALE]
    assert judged(WHOLE, early) == {}


class Breaks(httpx.AsyncByteStream):
    def __init__(self, text):
        self.text = text

    async def __aiter__(self):
        if self.text:
            yield self.text.encode()
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


def test_a_connection_that_breaks_off():
    start = Server.event({"id": f"c-{MARK}", "system_fingerprint": MARK, "choices": [{"token_ids": [5]}]})
    headers = {"x-policy-version": MARK}

    def transport(text):
        return httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=Breaks(text)))

    begun, nothing = asked(transport(start), STREAM), asked(transport(""), STREAM)
    killed = Context(CONTEXT.marks, kill=(begun.began - 1, begun.ended + 1))
    earlier = Context(CONTEXT.marks, kill=(0.0, 1.0))
    assert list(faults(begun, killed)) == [Fault.BROKEN_STREAM]
    assert list(faults(begun, CONTEXT)) == list(faults(begun, earlier)) == [Fault.TRUNCATED]
    assert list(faults(nothing, killed)) == [Fault.FAILED]  # no token came: it could have been sent elsewhere
    assert list(faults(asked(transport(""), WHOLE), killed)) == [Fault.FAILED]


def test_no_json_and_no_server_are_failures():
    html = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>"))
    assert list(faults(asked(html, WHOLE), CONTEXT)) == [Fault.FAILED]

    def refuse(request):
        raise httpx.ConnectError("refused")

    reply = asked(httpx.MockTransport(refuse), STREAM)
    assert list(faults(reply, CONTEXT)) == [Fault.FAILED] and "refused" in reply.error


def test_load_sends_all_and_goes_on_until_told():
    async def run():
        over = asyncio.Event()
        transport = httpx.ASGITransport(Server().app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            load = Load(http, "http://test", "policy", 3)
            shapes = plan(5, 0, ["a"], [4])
            assert await load.run(shapes, "quiet", lambda _: None) == 5
            sent = await load.run(shapes, "swapping", lambda _: len(load.replies) >= 20 and over.set(), over)
        return sent, load.replies

    sent, replies = asyncio.run(run())
    assert 15 <= sent <= 18 and len(replies) == 5 + sent  # three may be under way when it is told
    assert {reply.phase for reply in replies} == {"quiet", "swapping"}
    assert sum(count(faults(reply, CONTEXT) for reply in replies).values()) == 0


# --- plans and statistics ---


def test_plans_begin_alike_and_mix():
    long, short = plan(200, 3, ["a", "b"], [8, 64], 0.5), plan(20, 3, ["a", "b"], [8, 64], 0.5)
    assert long[:20] == short and plan(20, 4, ["a", "b"]) != short
    assert {shape.max_tokens for shape in long} == {8, 64} and {shape.prompt for shape in long} == {"a", "b"}
    assert 70 <= sum(shape.stream for shape in long) <= 130
    assert not any(shape.stream for shape in plan(50, 0, ["a"], stream_share=0))
    assert body(STREAM, "m")["stream_options"] == {"include_usage": True} and "stream" not in body(WHOLE, "m")
    assert split(7, 2) == [4, 3] and split(1, 2) == [1, 0]


def test_percentiles_by_hand():
    assert percentile([], 0.5) is None
    assert percentile([4.0, 1.0, 2.0, 3.0], 0.5) == 2.5
    assert percentile([1.0, 2.0], 0.99) == pytest.approx(1.99)
    assert percentile([5.0], 0.99) == 5.0
    assert spread([1.0, 3.0]) == {"p50": 2.0, "p99": 2.98}
    assert divided(1.0, 0.0) is None and divided(None, 2.0) is None and divided(3.0, 2.0) == 1.5


def test_paired_ratios_by_hand():
    assert paired([2.0, 3.0], [1.0, 2.0]) == {"ratio": 1.75, "low": None, "high": None, "rounds": 2}
    assert paired([], []) == {"ratio": None, "low": None, "high": None, "rounds": 0}
    same = paired([2.0, 4.0, 8.0], [1.0, 2.0, 4.0])  # the machine slows both sides down alike
    assert same == {"ratio": 2.0, "low": 2.0, "high": 2.0, "rounds": 3}
    wide = paired([1.0, 1.0, 1.0, 2.0, 2.0], [1.0] * 5)
    assert wide["low"] == 1.0 and wide["ratio"] == 1.0 and wide["high"] == 2.0


def test_a_reply_notes_equal_neighbours_once():
    reply = Reply(WHOLE, "quiet", 0.0)
    for mark in (MARK, MARK, OTHER, MARK):
        reply.saw(mark)
    assert reply.marks == [MARK, OTHER, MARK]


def test_what_was_sent_again_is_excused_only_around_a_kill():
    replied = asked(httpx.ASGITransport(Server().app), WHOLE)
    replied.resent = "RemoteProtocolError: Server disconnected"
    killed = Context(CONTEXT.marks, CONTEXT.confirmed, (replied.began, replied.ended))
    assert list(faults(replied, killed)) == [Fault.RESENT]
    assert list(faults(replied, CONTEXT)) == [Fault.FAILED]


@pytest.mark.parametrize(
    ("seen", "unanswered"),
    [
        ({"closed": True}, True),
        ({"closed": True, "status": 200, "header": MARK}, False),
        ({"status": 500}, True),
        ({"status": 500, "header": MARK}, False),
        ({"status": 400}, False),
        ({"status": 200, "done": True}, False),
    ],
)
def test_only_a_request_without_any_reply_is_sent_again(seen, unanswered):
    assert Reply(WHOLE, "quiet", 0.0, **seen).unanswered is unanswered
