import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import BadUpstream
from steelyard.wire.sse import DONE, StreamWatch, encode_event, error_event


def test_an_error_event_has_the_shape_that_openai_clients_raise():
    event = error_event(BadUpstream("It broke."))
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert json.loads(event[6:])["error"] == {
        "message": "It broke.",
        "type": "server_error",
        "param": None,
        "code": "REPLICA_FAILED",
    }


@pytest.mark.parametrize(
    ("end", "done"), [(b"data:[DONE]\n\n", True), (b"data: [DONE]\r\n\r\n", True), (b": [DONE]\n\n", False)]
)
def test_the_space_before_done_is_optional(end, done):
    watch = StreamWatch()
    watch.see(encode_event(b"{}"))
    watch.see(end)
    assert watch.done == done


@given(st.lists(st.binary(max_size=60).filter(lambda data: b"\n" not in data and b"\r" not in data)), st.data())
def test_a_watch_knows_boundary_and_done_however_the_stream_is_cut(payloads, data):
    stream = b"".join(encode_event(payload) for payload in payloads) + DONE
    end = data.draw(st.integers(0, len(stream)))
    watch = StreamWatch()
    position = 0
    while position < end:
        step = data.draw(st.integers(1, end - position))
        watch.see(stream[position : position + step])
        position += step
    assert watch.events == stream[:end].count(b"\n\n")
    assert watch.at_boundary == (end == 0 or stream[:end].endswith(b"\n\n"))
    if end == len(stream):
        assert watch.done
    elif watch.done:
        assert b"[DONE]" in stream[:end]
