"""Whatever bytes come, a decoder gives what it promises or one typed complaint; never anything else."""

from __future__ import annotations

import json

import msgpack
import msgpack_numpy
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine.errors import InputTooLong, InvalidInput
from engine.requests import Item
from web.wire import bodies
from web.wire.bodies import Asked
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.msgpack import DTYPES, ENCODER, Malformed, array

LIMITS = Limits(20, 2000)
READERS = [bodies.encode, bodies.score, bodies.extract, bodies.generate]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["dense", "interactive", "raw", "YQ==", "jpeg"]),
)
NAMES = """
    items query params options text id images audio video document metadata multivector data format
    sample_rate labels output_schema instruction output_types output_dtype profile class is_query threshold
    activation overflow_policy dimensions prompt stop seed temperature top_p stream max_new_tokens logit_bias
"""
names = st.sampled_from(NAMES.split())


def nested(inner: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5)


values = st.recursive(leaves, nested, max_leaves=15)
bodies_like_ours = st.fixed_dictionaries(
    {},
    optional={
        "items": st.lists(st.dictionaries(names, values, max_size=3) | leaves, max_size=4),
        "query": st.dictionaries(names, values, max_size=3),
        "params": st.dictionaries(names, values, max_size=4),
        "options": values,
        "prompt": leaves,
    },
)


def read(reader, body: bytes, form: Form) -> Asked | None:
    try:
        return reader(body, form, LIMITS)
    except (InvalidInput, InputTooLong):
        return None


@given(st.sampled_from(READERS), st.binary(max_size=300), st.sampled_from(Form))
def test_any_bytes_are_read_or_refused(reader, body, form):
    read(reader, body, form)


@given(st.sampled_from(READERS), bodies_like_ours, st.sampled_from(Form))
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_anything_like_a_body_is_read_or_refused(reader, body, form):
    try:
        packed = json.dumps(body).encode() if form is Form.JSON else msgpack.packb(body)
    except (ValueError, OverflowError):
        return

    asked = read(reader, packed, form)

    if asked:
        assert all(isinstance(item, Item) for item in asked.items)
        assert 1 <= len(asked.items) <= LIMITS.items


@given(st.sampled_from(READERS), bodies_like_ours, st.integers(0, 200), st.binary(max_size=4))
def test_a_body_that_was_damaged_is_read_or_refused(reader, body, at, damage):
    try:
        packed = msgpack.packb(body)
    except OverflowError:
        return
    read(reader, packed[:at] + damage + packed[at + len(damage) :], Form.MSGPACK)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@given(st.lists(st.tuples(texts, st.none() | texts), min_size=1, max_size=20), st.sampled_from(Form))
def test_texts_and_ids_come_through_unchanged(pairs, form):
    items = [{"text": text, "id": name} for text, name in pairs]
    packed = json.dumps({"items": items}).encode() if form is Form.JSON else msgpack.packb({"items": items})

    asked = bodies.encode(packed, form, LIMITS)

    assert [(item.text, item.id) for item in asked.items] == pairs


ours = arrays.arrays(
    st.sampled_from(sorted(DTYPES)).map(np.dtype), arrays.array_shapes(min_dims=0, max_dims=4, min_side=0)
)


@given(ours)
def test_an_array_comes_back_as_it_was_and_is_no_copy(value):
    packed = ENCODER.encode(value)
    fields = msgpack.unpackb(packed)

    back = array(fields)

    assert packed == msgpack.packb(value, default=msgpack_numpy.encode)
    assert (back.dtype, back.shape) == (value.dtype, value.shape)
    assert back.tobytes() == value.tobytes()
    assert not back.flags.owndata


@given(st.dictionaries(st.sampled_from([b"nd", b"type", b"kind", b"shape", b"data", "nd"]), values))
def test_a_map_that_is_no_array_is_malformed(fields):
    with pytest.raises(Malformed):
        array(fields)
