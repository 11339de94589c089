"""Lanes in the order of their shares."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.requests import ServiceClass
from engine.scheduling.order import Order

places = st.tuples(
    st.sampled_from("uvwx"),
    st.sampled_from(ServiceClass),
    st.floats(0, 9),
    st.lists(st.sampled_from("de"), max_size=2, unique=True).map(tuple),
    st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(places))
def test_each_lane_is_where_it_was_put_last_and_who_has_had_least_is_first(steps):
    order, placed = Order(), {}
    for unit, service_class, virtual, devices, leaves in steps:
        if leaves:
            order.drop(unit)
            placed.pop(unit, None)
        else:
            order.put(unit, service_class, virtual, devices)
            placed[unit] = (service_class, virtual, devices)
        for device in "de":
            for one in ServiceClass:
                there = [(v, u) for u, (c, v, ds) in placed.items() if c is one and device in ds]
                assert list(order.lanes(device, one)) == sorted(there)
