from prometheus_client.openmetrics.parser import text_string_to_metric_families

from steelyard.observe import metrics
from steelyard.observe.metrics import MetricSet, merge


def families(text: bytes) -> dict:
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def test_rendered_text_is_openmetrics_with_the_values_that_were_added():
    metric_set = MetricSet()
    metric_set.counter("requests", "Requests.", ("endpoint",)).labels("iris").inc(3)
    metric_set.gauge("in_flight", "Now.").labels().set(2)
    latency = metric_set.histogram("latency_seconds", "Latency.", ("endpoint",), bounds=(0.1, 1.0)).labels("iris")
    for value in (0.05, 0.1, 0.5, 7.0):
        latency.observe(value)
    found = families(metric_set.render())
    assert found["requests"].samples[0].value == 3
    assert found["in_flight"].samples[0].value == 2
    buckets = {s.labels["le"]: s.value for s in found["latency_seconds"].samples if s.name.endswith("_bucket")}
    assert buckets == {"0.1": 2, "1.0": 3, "+Inf": 4}
    assert latency.count == 4


def test_series_beyond_the_bound_share_one_named_other(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_SERIES", 3)
    family = MetricSet().counter("requests", "Requests.", ("endpoint",))
    for index in range(10):
        family.labels(f"name-{index}").inc()
    assert family.labels("name-9").value == 7
    assert family.labels("name-0").value == 1


def test_removed_series_make_room_and_a_held_child_goes_on_unseen(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_SERIES", 3)
    metric_set = MetricSet()
    family = metric_set.counter("requests", "Requests.", ("endpoint", "code"))
    held = family.labels("a", "200")
    family.labels("a", "503").inc()
    family.labels("b", "200").inc()
    family.remove("a")
    held.inc()
    family.labels("c", "200").inc()
    found = families(metric_set.render())
    totals = [s for s in found["requests"].samples if s.name == "requests_total"]
    assert {(s.labels["endpoint"], s.labels["code"]): s.value for s in totals} == {("b", "200"): 1, ("c", "200"): 1}


def test_merge_keeps_every_process_apart_by_its_labels():
    texts = []
    for index in range(2):
        metric_set = MetricSet()
        metric_set.counter("requests", "Requests.", ("endpoint",)).labels("iris").inc(index + 1)
        metric_set.histogram("latency_seconds", "Latency.").labels().observe(0.2)
        texts.append(({"router": str(index)}, metric_set.render()))
    found = families(merge(texts))
    values = {s.labels["router"]: s.value for s in found["requests"].samples if s.name == "requests_total"}
    assert values == {"0": 1, "1": 2}
