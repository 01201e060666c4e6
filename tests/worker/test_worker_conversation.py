"""The conversation's parts: frames on sockets, rows as bytes, errors as messages, lines of the log."""

import json
import math
import os
import socket
import threading

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from steelyard import errors
from steelyard.contracts.worker import MAX_HEADER_BYTES, PREFIX, Fault
from steelyard.errors import InternalError, MethodNotAllowed, SteelyardError
from steelyard.protocols.inputs import Inputs, Records
from steelyard.worker.arrays import pack_inputs, unpack_inputs
from steelyard.worker.faults import error_of, fault_of
from steelyard.worker.frames import BrokenFrame, Channel
from steelyard.worker.log import labels, log, request
from steelyard.worker.outcome import float_bits, packed

SIZES = st.sampled_from([0, 1, 7, 65_527, 65_528, 65_536, 65_537, 200_000])


def channels() -> tuple[Channel, Channel]:
    one, other = socket.socketpair()
    return Channel(one), Channel(other)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), SIZES), min_size=1, max_size=6))
def test_frames_arrive_whole_and_in_order_whatever_their_size(sizes):
    frames = [(os.urandom(header), os.urandom(payload)) for header, payload in sizes]
    one, other = channels()

    def send():
        for header, payload in frames:
            one.send(header, payload)
        one.close()

    thread = threading.Thread(target=send)
    thread.start()
    assert [other.receive() for _ in frames] == frames
    assert other.receive() is None
    thread.join()
    other.close()


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_frame_that_is_cut_anywhere_is_no_frame(payload, data):
    whole = PREFIX.pack(3, len(payload)) + b"abc" + payload
    one, other = socket.socketpair()
    one.sendall(whole[: data.draw(st.integers(1, len(whole) - 1))])
    one.close()
    channel = Channel(other)
    with pytest.raises(BrokenFrame, match="inside a frame"):
        channel.receive()
    channel.close()


def test_a_frame_that_claims_too_much_is_refused_before_it_is_held():
    one, other = channels()
    one.socket.sendall(PREFIX.pack(MAX_HEADER_BYTES + 1, 0))
    with pytest.raises(BrokenFrame, match="too large"):
        other.receive()


def test_a_descriptor_comes_with_its_message():
    one, other = channels()
    read, write = os.pipe()
    one.send_with(b"take this", write)
    data, descriptors, _, _ = socket.recv_fds(other.socket, 100, 4)
    assert data.endswith(b"take this")
    os.write(descriptors[0], b"!")
    assert os.read(read, 1) == b"!"
    for descriptor in (read, write, *descriptors):
        os.close(descriptor)


NUMBERS = st.sampled_from(["<i4", "<i8", "<f4", "<f8", "?", "<u1", "<M8[ns]", "<f2", "<c16"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.text(max_size=5), st.binary(max_size=5), st.integers(-(2**63), 2**64 - 1)
)
NESTED = st.one_of(VALUES, st.lists(VALUES, max_size=3), st.dictionaries(st.text(max_size=3), VALUES, max_size=3))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 4), st.booleans())
def test_rows_survive_the_way_to_the_worker_bit_for_bit(data, rows, columnar):
    numbers = data.draw(NUMBERS.flatmap(lambda kind: arrays.arrays(kind, (rows, 2))))
    values = np.empty(rows, dtype=object)
    for place in range(rows):
        values[place] = data.draw(NESTED)
    index = data.draw(st.one_of(st.none(), st.just(list(range(rows)))))
    given = Inputs(("a", 1), rows, None, (numbers, values), columnar, index)
    got = unpack_inputs(pack_inputs(given))
    assert (got.names, got.rows, got.columnar, got.index, got.matrix) == (("a", 1), rows, columnar, index, None)
    assert got.parts[0].dtype == numbers.dtype
    assert got.parts[0].tobytes() == numbers.tobytes()
    assert list(got.parts[1]) == list(values)
    matrix = unpack_inputs(pack_inputs(Inputs((None, "b"), rows, numbers))).matrix
    assert matrix is not None
    assert matrix.tobytes() == numbers.tobytes()
    assert matrix.flags.writeable


def _plain_errors():
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, SteelyardError) and kind is not MethodNotAllowed
    ]


@pytest.mark.parametrize("kind", _plain_errors())
def test_every_error_arrives_as_itself(kind):
    error = error_of(fault_of(kind("It was wrong.", param="a", retry_after_s=2.0)))
    assert type(error) is kind
    assert (error.message, error.param, error.retry_after_s) == ("It was wrong.", "a", 2.0)
    assert error.body() == kind("It was wrong.", param="a").body()


def test_an_error_that_nobody_knows_is_an_internal_one():
    for name in ("NoSuchError", "MethodNotAllowed", "__builtins__", "ClassVar"):
        assert type(error_of(Fault(name, "Eh.", None, None, 0.0, 0.0))) is InternalError


def test_a_line_of_the_log_has_the_shape_of_the_replicas_lines(capfd):
    token = request.set("r-7")
    labels["endpoint"] = "iris"
    try:
        log("error", "prediction_failed", trace="Traceback\n  …", number=object)
    finally:
        request.reset(token)
        labels.clear()
    line = json.loads(capfd.readouterr().err)
    assert line.keys() == {"endpoint", "process", "pid", "request_id", "trace", "number", "event", "level", "timestamp"}
    assert line["timestamp"].endswith("Z")
    assert line["request_id"] == "r-7"


@pytest.mark.parametrize(
    ("output", "bits"),
    [
        (np.zeros(2, np.float32), 32),
        (np.zeros(2), 64),
        ([1, 2], None),
        (["a"], None),
        ({"a": np.zeros(2, np.float32), "b": [1.5]}, 64),
        (Records(("a",), (np.zeros(2, np.float32),)), 32),
        (np.array([1.5, None], dtype=object), 64),
        (np.float32(1), 32),
        (np.array(["a"], dtype=object), None),
    ],
)
def test_the_widest_float_of_an_output_is_known(output, bits):
    assert float_bits(output) == bits


def test_an_outcome_keeps_nan_integers_and_what_no_json_holds():
    value = msgspec.msgpack.decode(packed([1, 1.0, math.nan, math.inf, 2**70, True, None]))
    assert list(map(type, value)) == [int, float, float, float, str, bool, type(None)]
    assert math.isnan(value[2])
    with pytest.raises(errors.ModelFailed):
        packed(["\ud800"])
