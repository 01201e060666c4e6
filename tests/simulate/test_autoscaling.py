"""Autoscalers on virtual time: ours absorbs what the claims say, the others act as published, scores count fairly."""

import itertools
import json
from array import array
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from steelyard.simulate.autoscaling import INSTANT, NAMES, OURS, STATIC_PEAK, Run, run, static_peak
from steelyard.simulate.autoscaling_scores import Score, lost, scored, turns, verdict
from steelyard.simulate.conventional import CONVENTIONAL, KedaQueue, KnativeKpa, KubernetesHpa, RayServe, Seen, Site
from steelyard.simulate.fleet import ReplicaModel
from steelyard.simulate.loads import LARGE_MODEL, SMALL_MODEL, SYNTHETIC, Load, available

TARGET_S = 10.0
SITE = Site(10.0, 10.0, 1, 1000, 10.0, 10)


def drawn(name: str, seed: int = 1) -> Load:
    return SYNTHETIC[name](np.random.default_rng(seed))


def score(load: Load, name: str) -> Score:
    return scored(run(load, name, target_s=TARGET_S), TARGET_S)


def seen(at_s: float, *, ready: int = 10, running: float = 50.0, queued: float = 0.0, busy: float = 0.5) -> Seen:
    return Seen(at_s, ready, 0, running, queued, running, 1.0, busy)


# --- ours


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_ten_to_ten_thousand_a_second_is_absorbed_within_a_minute(seed: int) -> None:
    ours = score(drawn("step", seed), OURS)
    assert ours.recover_s is not None
    assert 10 <= ours.recover_s < 60  # no one is faster than a model loads
    assert ours.turns == 0


@pytest.mark.parametrize("name", ["spikes-lossy", "collapse"])
def test_spikes_that_come_again_are_refused_several_times_less_often_than_by_any_other(name: str) -> None:
    load = drawn(name)
    ours = score(load, OURS)
    others = [score(load, other) for other in CONVENTIONAL]
    cheaper = [other for other in others if other.replica_hours < ours.replica_hours]
    assert all(other.rejected >= 5 * ours.rejected for other in cheaper)
    assert sum(other.rejected for other in others) >= 40 * ours.rejected
    assert ours.turns <= 2


@pytest.mark.parametrize("name", ["constant", "constant-lossy", "constant-slow-start"])
def test_ours_changes_direction_at_most_twice_in_ten_minutes(name: str) -> None:
    assert score(drawn(name), OURS).turns <= 2


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = (run(replace(drawn("step"), lost=0.3), OURS, seed=7) for _ in range(2))
    assert (one.replicas, one.rejected, one.waits) == (two.replicas, two.rejected, two.waits)


# --- the others, as published


def test_hpa_doubles_or_adds_four_each_sync_and_waits_five_minutes_to_go_down() -> None:
    hpa = KubernetesHpa(replace(SITE, replicas=2))
    orders = [hpa.wanted(float(second), seen(second, ready=1000, busy=1.0)) for second in range(1, 61)]
    assert [orders[at - 1] for at in (14, 15, 30, 45, 60)] == [2, 6, 12, 24, 48]
    before = orders[-1]
    orders = [hpa.wanted(float(second), seen(second, ready=before, busy=0.4)) for second in range(61, 61 + 330)]
    assert set(orders[:285]) == {before}
    assert orders[-1] == before // 2  # half busy at a target of 80 %


def test_hpa_leaves_what_is_within_a_tenth_of_the_target() -> None:
    hpa = KubernetesHpa(SITE)
    assert {hpa.wanted(float(second), seen(second, busy=0.86)) for second in range(1, 200)} == {10}


def test_kpa_panics_at_twice_what_is_ready_and_does_not_go_down_while_it_does() -> None:
    kpa = KnativeKpa(SITE)
    calm = [kpa.wanted(float(second), seen(second, running=70.0)) for second in range(2, 100)]
    assert set(calm) == {10}  # 70 ÷ (0.7 × 10)
    panic = [kpa.wanted(float(second), seen(second, running=100.0, queued=900.0)) for second in range(100, 110)]
    assert max(panic) >= 140
    after = [kpa.wanted(float(second), seen(second, ready=143, running=70.0)) for second in range(110, 150)]
    assert min(after) == max(panic)
    later = [kpa.wanted(float(second), seen(second, ready=143, running=70.0)) for second in range(150, 300)]
    assert later[-1] == 71  # not below half of what is ready at once


def test_ray_goes_up_after_thirty_seconds_and_down_after_ten_minutes() -> None:
    ray = RayServe(SITE)
    up = [ray.wanted(float(second), seen(second, running=100.0, queued=60.0)) for second in range(100)]
    assert up.index(20) == 30
    down = [ray.wanted(float(second), seen(second, ready=20, running=80.0)) for second in range(100, 800)]
    assert down[590] == 20
    assert down[-1] == 10


def test_keda_polls_the_queue_every_half_minute_and_goes_to_zero_after_its_cooldown() -> None:
    keda = KedaQueue(replace(SITE, min_replicas=0, replicas=1))
    orders = [keda.wanted(float(second), seen(second, queued=350.0)) for second in range(1, 91)]
    assert [orders[at - 1] for at in (14, 15, 30, 45, 60, 90)] == [1, 5, 10, 20, 40, 40]
    idle = [keda.wanted(float(second), seen(second, running=0.0, busy=0.0)) for second in range(91, 500)]
    assert idle[200] > 0
    assert idle[-1] == 0


@pytest.mark.parametrize("name", [*CONVENTIONAL, OURS, INSTANT])
def test_every_autoscaler_stays_within_its_bounds_and_holds_where_metrics_never_come(name: str) -> None:
    load = Load("dark", [100.0] * 400, SMALL_MODEL, lost=1.0)
    assert set(run(load, name).replicas) == {2.0}
    huge = Load("huge", [0.0] * 5 + [10_000.0] * 400, SMALL_MODEL)
    assert max(run(huge, name).replicas) <= 2 * static_peak(huge, TARGET_S)


# --- bounds and scores


def test_the_static_peak_keeps_all_within_the_target_and_one_replica_fewer_does_not() -> None:
    load = drawn("bursts")
    peak = static_peak(load, TARGET_S)
    done = score(load, STATIC_PEAK)
    assert (done.most_replicas, done.rejected, done.attainment) == (peak, 0, 1.0)
    assert peak * SMALL_MODEL.per_s < max(load.arrivals)  # waiting within the target is used


def test_a_score_counts_rejected_and_late_requests_turns_and_the_recovery() -> None:
    load = Load("l", [10.0] * 1200, ReplicaModel(1.0, ((1.0, 1.0),), 1.0), spike=True, shocks_s=(100, 700))
    steps = [1.0] * 100 + [3.0] * 50 + [2.0] * 50 + [4.0] * 500 + [1.0] * 500
    done = Run(OURS, load, replicas=array("d", steps), waits={0: 900.0, 100: 60.0, 240: 30.0}, replica_s=7200.0)
    done.queued = array("d", [1.0] * 1200)
    done.rejected = array("d", [0.0] * 1200)
    done.rejected[130] = 10.0
    done.longest_s = array("d", [0.0] * 1200)
    done.longest_s[720] = 12.0
    found = scored(done, TARGET_S)
    assert (found.requests, found.rejected, found.queueing_s, found.replica_hours) == (1000.0, 10.0, 1200.0, 2.0)
    assert found.attainment == pytest.approx(0.96)
    assert (found.wait_p50_s, found.wait_p99_s) == (0.0, 12.0)
    assert (found.turns, found.changes_per_h, found.recover_s) == (3, 12.0, 31.0)


def test_turns_count_changes_of_direction_within_ten_minutes() -> None:
    assert turns([1.0] * 50) == turns([1.0, 2.0, 3.0]) == 0
    assert turns([1.0, 2.0, 2.0, 1.0, 2.0]) == 2
    assert turns([1.0, 2.0, *[1.0] * 700, 2.0, 1.0]) == 2
    flapping = list(itertools.chain.from_iterable([[1.0] * 60, [2.0] * 60] * 10))
    assert turns(flapping) == 10


def made(load: str, name: str, rejected: float, hours: float, attainment: float) -> Score:
    return Score(
        load, name, 1000.0, rejected, rejected, 0.0, 1.0, attainment, hours, 5, 1.0, 1, 20.0, spike=True, bursty=True
    )  # fmt: skip


def test_the_verdict_pools_cells_and_lost_ones_are_named() -> None:
    scores = [
        made("a", OURS, 10.0, 5.0, 0.99),
        made("a", "hpa-cpu", 100.0, 5.0, 0.9),
        made("a", "ray-serve", 60.0, 10.0, 0.94),
        made("a", STATIC_PEAK, 0.0, 50.0, 1.0),
        made("b", OURS, 10.0, 5.0, 0.99),
        made("b", "hpa-cpu", 0.0, 4.0, 1.0),
        made("b", "ray-serve", 20.0, 5.0, 0.98),
        made("b", STATIC_PEAK, 0.0, 50.0, 1.0),
    ]
    told = verdict(scores)
    assert told["rejections_vs_best_conventional"] == pytest.approx(20 / 80)
    assert told["best_conventional"] == "ray-serve"
    assert told["saved_vs_static_peak"] == pytest.approx(0.9)
    assert told["bursty_within_target"] == pytest.approx(0.99)
    assert told["cells"] == 2
    assert told["cells_lost"] == 1
    assert [line.split(" missed")[0] for line in lost(scores)] == ["b: hpa-cpu"]
    json.dumps(told, allow_nan=False)
    assert verdict([])["rejections_vs_best_conventional"] is None


# --- loads


def test_loads_are_drawn_alike_for_a_seed_and_carry_their_mean() -> None:
    for name, make in SYNTHETIC.items():
        one, two = make(np.random.default_rng(3)), make(np.random.default_rng(3))
        assert one.name == name
        assert asdict(one) == asdict(two)
        assert min(one.arrivals) >= 0
    assert np.mean(drawn("constant").arrivals) == pytest.approx(395, rel=0.02)
    assert drawn("diurnal-slow-start").model is LARGE_MODEL


def test_recorded_envelopes_are_summed_and_the_bursty_clients_stand_alone(tmp_path: Path) -> None:
    folder = tmp_path / "servegen" / "m-small-trace"
    folder.mkdir(parents=True)
    steady = "".join(f"{600 * n},50,1.0,Gamma,1,0.02\n" for n in range(12))
    bursty = "".join(f"{600 * n},{40 if n == 6 else 0},{200 if n == 6 else ''},,0,0\n" for n in range(12))
    (folder / "chunk-0-trace.csv").write_text(steady)
    (folder / "chunk-1-trace.csv").write_text(bursty)
    (tmp_path / "AzureLLMInferenceTrace_code_2023.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    loads = available(tmp_path, 1, 14)
    assert set(loads) - set(SYNTHETIC) == {"azure-code", "servegen-all", "servegen-client-1"}
    whole, client = loads["servegen-all"](), loads["servegen-client-1"]()
    assert len(whole.arrivals) == len(client.arrivals) == 7200
    assert np.mean(whole.arrivals) == pytest.approx(50 + 40 / 12, rel=0.1)
    assert client.bursty
    assert not whole.bursty
    assert max(client.arrivals[:3000]) == 0
    azure = loads["azure-code"]()
    assert (list(azure.arrivals[:5]), sum(azure.arrivals)) == ([20, 0, 0, 0, 20], 40)
    assert len(available(tmp_path, 1, 0.05)["servegen-all"]().arrivals) == 4320


def test_what_is_no_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No trace in"):
        available(tmp_path, 1, 1)
    folder = tmp_path / "servegen" / "m-small-trace"
    folder.mkdir(parents=True)
    (folder / "chunk-0-trace.csv").write_text("0,many\n")
    with pytest.raises(ValueError, match="chunk-0"):
        available(tmp_path, 1, 1)


def test_all_names_are_known() -> None:
    assert set(NAMES) == {OURS, *CONVENTIONAL, INSTANT, STATIC_PEAK}
