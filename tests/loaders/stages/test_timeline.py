"""Timelines: what the trace file and the figure say is what the stages did."""

import json
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.errors import ArgumentError, BalancerError
from loaders.stages import Call, Stage, StagePipeline
from loaders.stages.timeline import plot_timeline, write_trace

pytestmark = pytest.mark.timeout(60)


def read(sample_id):
    time.sleep(0.002)
    return sample_id


@pytest.fixture(scope="module")
def calls():
    stages = [
        Stage(name="read", work=read, workers=2, threads=0),
        Stage(name="decode", work=read, workers=3, threads=0),
        Stage(name="collate", work=tuple, grain="microbatch"),
    ]
    with StagePipeline(stages, trace=1000) as pipeline:
        list(pipeline([[i, i + 1] for i in range(0, 20, 2)]))
        return pipeline.calls


def events_of(path, phase):
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == phase]


def assert_nested(events):
    """On one track an event ends before the next begins, so viewers draw them side by side."""
    for thread in {event["tid"] for event in events}:
        track = [event for event in events if event["tid"] == thread]
        for first, second in pairwise(track):
            assert first["ts"] <= second["ts"]
            assert first["ts"] + first["dur"] <= second["ts"] + 1e-6


def test_every_call_of_a_pipeline_is_in_the_trace(calls, tmp_path):
    """20 samples in two stages, 10 microbatches, and the consumer's waits, each on its track."""
    path = write_trace(calls, tmp_path / "trace.json")
    events = events_of(path, "X")
    counts = {name: sum(event["name"] == name for event in events) for name in
              ("read", "decode", "collate", "wait")}  # fmt: skip
    assert counts == {"read": 20, "decode": 20, "collate": 10, "wait": 10}
    read_ids = [
        i for event in events if event["name"] == "read" for i in event["args"]["sample_ids"]
    ]
    assert sorted(read_ids) == list(range(20))
    assert_nested(events)
    names = {event["tid"]: event["args"]["name"] for event in events_of(path, "M")
             if event["name"] == "thread_name"}  # fmt: skip
    assert names[1] == "consumer"
    assert {names[event["tid"]].split()[0] for event in events} == {
        "consumer", "read", "decode", "collate"}  # fmt: skip


@given(
    begin=st.floats(0, 1e6),
    parts=st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e-6)), min_size=1, max_size=20),
)
def test_calls_that_abut_do_not_overlap_in_the_trace(tmp_path_factory, begin, parts):
    """Whatever the clock read: rounding makes no two calls of a worker overlap."""
    calls, now = [], begin
    for gap, took in parts:
        now += gap
        calls.append(Call(stage="a", worker=0, begin=now, end=now + took, sample_ids=(1,), step=3))
        now = calls[-1].end
    events = events_of(write_trace(calls[::-1], tmp_path_factory.getbasetemp() / "t.json"), "X")
    assert len(events) == len(calls)
    assert events[0]["ts"] == 0
    assert events[0]["args"] == {"sample_ids": [1], "step": 3}
    assert_nested(events)


def test_the_figure_shades_the_consumers_waits(tmp_path):
    """A wait in the first half of the time colours the left half of the figure, not the right."""
    from matplotlib.image import imread

    wait = Call(stage="consumer", worker=0, begin=5.0, end=6.0, sample_ids=(0,), step=0)
    made = [
        Call(stage="read", worker=0, begin=5.9, end=6.0, sample_ids=(0,), step=0),
        Call(stage="read", worker=0, begin=6.9, end=7.0, sample_ids=(1,), step=0),
    ]
    image = imread(plot_timeline([wait, *made], tmp_path / "t.png"))[..., :3]
    alone = imread(plot_timeline(made, tmp_path / "u.png"))[..., :3]
    shade = np.abs(image - np.array([0.9634, 0.898, 0.8845])).max(axis=2) < 0.03
    columns = np.flatnonzero(shade.sum(axis=0) > 40)  # the legend is lower
    assert 0.4 * image.shape[1] < len(columns) < 0.6 * image.shape[1]
    assert columns.max() < 0.6 * image.shape[1]
    assert image.shape[1] == alone.shape[1]


def test_the_figure_of_a_pipeline_is_a_png(calls, tmp_path):
    path = plot_timeline(calls, tmp_path / "timeline.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_named(calls, tmp_path, monkeypatch):
    """No calls, another kind of file, no matplotlib: each says what to do."""
    with pytest.raises(ArgumentError, match=r"calls is empty.*trace="):
        write_trace([], tmp_path / "trace.json")
    with pytest.raises(ArgumentError, match=r"ending in \.png"):
        plot_timeline(calls, tmp_path / "timeline.pdf")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BalancerError, match=r"evenstep\[plots\]"):
        plot_timeline(calls, tmp_path / "timeline.png")
    assert "trace.json" not in {path.name for path in tmp_path.iterdir()}
