"""The compiled plan says the same as the general path, or nothing: over valid, odd and broken bodies."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import BadRequest
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import parse_input_schema, parse_invocation
from steelyard.protocols.mlflow.general import decode_invocation
from steelyard.protocols.mlflow.plan import compile_plan
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema, Tensor
from support.typed_rows import WRITERS, same, table_bodies, tables, tensor_bodies, tensors, written

ODDITIES = [
    b"-0", b"-0.0", b"1e400", b"NaN", b"Infinity", b"9223372036854775808", b"1.0", b"1e2", b"0.1e-400",
    b"12345678901234567890123", b"null", b"true", b'"x"', b'"\\ud800"', b'"\\u0061"', b"\xff", b"{}", b"[]", b",",
    b" ", b"]", b"[", b'"data":[[1]],', b'"columns":["a"],', b'"index":[7],', b'"inputs":[[1]],', b'"params":{},',
    b'"stream":true,', b'"dataframe_split":{},', b"}}", b"\xef\xbb\xbf", b"\x00", b"3.4028235677973366e+38",
]  # fmt: skip


def general(schema, body):
    """What the general path decodes, or None where it refuses."""
    try:
        return decode_invocation(parse_invocation(body, Media.JSON), schema)
    except BadRequest:
        return None


def agrees(plan, schema, body):
    """Checks one body; whether the plan took it."""
    planned, expected = plan.decode(body), general(schema, body)
    if planned is None:
        return False
    assert expected is not None, "the plan took what the general path refuses"
    same(planned, expected)
    return True


@st.composite
def mutated(draw, body):
    """The body with a few bytes cut, repeated, moved or replaced by something odd."""
    for _ in range(draw(st.integers(1, 2))):
        start = draw(st.integers(0, len(body)))
        stop = min(len(body), start + draw(st.integers(0, 6)))
        body = body[:start] + draw(st.sampled_from([b"", body[start:stop] * 2, *ODDITIES])) + body[stop:]
    return body


@given(tables(nested=True), st.data())
@settings(max_examples=120)
def test_a_table_decodes_as_on_the_general_path_in_every_order_and_style(table, data):
    schema, rows = table
    plan = compile_plan(schema)
    order = data.draw(st.permutations(range(len(schema.columns))))
    names = [schema.columns[place].name for place in order]
    for body in table_bodies(names, [[row[place] for place in order] for row in rows]):
        text = written(body, data.draw(st.sampled_from(WRITERS)))
        for _ in range(2):  # the second time from what was remembered of the first
            agrees(plan, schema, text)
        agrees(plan, schema, data.draw(mutated(text)))
        agrees(plan, schema, text)


@given(tensors(), st.data())
@settings(max_examples=150)
def test_tensors_decode_as_on_the_general_path(case, data):
    schema, values = case
    plan = compile_plan(schema)
    for body in tensor_bodies(values):
        text = written(body, data.draw(st.sampled_from(WRITERS)))
        if plan is None:
            assert any(tensor.dtype == "float16" for tensor in schema.tensors)
            return
        agrees(plan, schema, text)
        agrees(plan, schema, data.draw(mutated(text)))


@pytest.mark.parametrize(
    "kinds", [["double"] * 4, ["float"], ["long"] * 2, ["integer"] * 2, ["double", "long", "string", "boolean"]]
)
def test_the_usual_bodies_are_the_plans(kinds):
    schema = InputSchema(tuple(Column(f"c {place}", ColumnType(kind)) for place, kind in enumerate(kinds)))
    plan = compile_plan(schema)
    value = {"string": "ü", "boolean": True}
    for rows in (1, 3):
        names = [column.name for column in schema.columns]
        table = [[value.get(kind, 7) for kind in kinds]] * rows
        for body in table_bodies(names[::-1], [row[::-1] for row in table]):
            for style in ({}, {"separators": (",", ":")}, {"indent": 2}):
                assert agrees(plan, schema, written(body, style))


def test_optional_columns_may_be_absent_without_leaving_the_plan():
    schema = parse_input_schema(
        '[{"name":"a","type":"double"},{"name":"b","type":"long","required":false},{"name":"c","type":"double"}]'
    )
    plan = compile_plan(schema)
    for body in table_bodies(["c", "a"], [[1, 2], [3, None]]):
        assert agrees(plan, schema, json.dumps(body).encode())
    assert plan.decode(b'{"inputs":{"a":[1],"c":[2]}}').matrix.tolist() == [[1, 2]]
    for body in table_bodies(["a", "b", "c"], [[1, 5, 2]]):
        inputs = plan.decode(json.dumps(body).encode())
        assert [part.dtype for part in inputs.parts] == [np.float64, np.int64, np.float64]


def test_a_sole_column_takes_a_plain_list():
    schema = parse_input_schema('[{"name":"text","type":"string"}]')
    plan = compile_plan(schema)
    for body in (b'{"inputs":["a","b"]}', b'{"instances":["a",null]}', b'{"inputs":[{"text":"a"}]}'):
        assert agrees(plan, schema, body)
    assert not agrees(plan, schema, b'{"inputs":["a",{"text":"b"}]}')


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":{"a":[1]},"params":{"k":1}}',
        b'{"inputs":{"a":[1]},"client_request_id":"r"}',
        b'{"inputs":{"a":[1]},"stream":true}',
        b'{"inputs":{"a":[1],"z":[1]}}',
        b'{"inputs":{"a":[1]},"instances":null}',
        b'{"inputs":{"a":[]}}',
        b'{"inputs":{"a":[true]}}',
        b'{"inputs":{"a":["1"]}}',
        b'{"inputs":{}}',
        b'{"dataframe_records":[]}',
        b'{"dataframe_split":{"columns":["a"],"data":[]}}',
        b'{"dataframe_split":{"columns":["a","a"],"data":[[1,2]]}}',
        b'{"dataframe_split":{"columns":["a"],"data":[[1]],"data":[[2]]}}',
        b'{"dataframe_split":{"columns":["\xff"],"columns":["a"],"data":[[1]]}}',
        b'{"dataframe_split":{"columns":["a"],"data":[[1]]},"params":{}}',
        b'{"dataframe_split":{"columns":["a"],"index":[1,2],"data":[[1]]}}',
        b'{"dataframe_split":{"columns":["a"],"data":[[1e400]]}}',
        b'{"dataframe_split":{"columns":["a"],"data":[[1]]}}}',
        b'[{"dataframe_split":{"columns":["a"],"data":[[1]]}}',
        b"",
        b"[" * 100_000,
        b'{"dataframe_split":{"columns":' + b"[" * 100_000,
        b'{"dataframe_split":{"columns":["a"],"data":' + b"[" * 100_000 + b"}}",
    ],
)
def test_what_is_unusual_goes_the_general_way(body):
    schema = parse_input_schema('[{"name":"a","type":"double"}]')
    plan = compile_plan(schema)
    assert plan.decode(b'{"dataframe_split":{"columns":["a"],"data":[[1]]}}') is not None
    assert plan.decode(body) is None


def test_many_orders_and_heads_do_not_grow_the_memory_of_a_plan():
    schema = parse_input_schema('[{"name":"a","type":"double"},{"name":"b","type":"double","required":false}]')
    plan = compile_plan(schema)
    for number in range(300):
        body = b'{"dataframe_split":{"index":[%d],"columns":%s["a"],"data":[[1]]}}' % (number, b" " * number)
        assert plan.decode(body).index == [number]
        assert plan.decode(b'{"dataframe_split":{"columns":[%s"a"],"data":[[1]]}}' % (b" " * number)) is not None
    assert len(plan._split._heads) <= 4
    assert len(plan._split._orders) <= 64


def test_a_decoded_array_is_its_own_and_writable():
    schema = InputSchema(tensors=(Tensor(None, "float32", (-1, 2)),))
    plan = compile_plan(schema)
    body = b'{"inputs":[[1,2]]}'
    plan.decode(body).parts[0][0, 0] = 9
    assert plan.decode(body).parts[0].tolist() == [[1, 2]]
    table = compile_plan(parse_input_schema('[{"name":"a","type":"double"}]'))
    text = b'{"dataframe_split":{"columns":["a"],"data":[[1]]}}'
    table.decode(text).matrix[0, 0] = 9
    assert table.decode(text).matrix.tolist() == [[1]]


def test_five_hundred_columns_in_any_order():
    names = [f"feature {place}" for place in range(500)]
    schema = InputSchema(tuple(Column(name, ColumnType.DOUBLE) for name in names))
    plan = compile_plan(schema)
    for body in table_bodies(names[::-1], [list(range(500))[::-1]]):
        assert agrees(plan, schema, json.dumps(body).encode())
