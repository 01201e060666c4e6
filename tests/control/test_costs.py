"""The latest calibration of a served model is in the routing snapshot; what is new reaches it at once."""

from steelyard.contracts.cost import Calibration, Hardware, LatencyTarget, StoredCalibration
from steelyard.contracts.snapshot import CostView
from steelyard.control.calibrations import keep
from steelyard.control.costs import Costs
from steelyard.control.definitions import EntityDefinition

IRIS = EntityDefinition(name="iris-1", entity_name="iris", model_uri="models:/iris/1", entity_version="1")


def stored(row: float, *, created_ms: int = 1, endpoint_id: str = "e1", **changes) -> StoredCalibration:
    values = {
        "endpoint": "iris", "served_entity": "iris-1", "model_uri": "models:/iris/1", "model_version": "1",
        "runtime": "linear", "hardware": Hardware(processor="p", cores=2, memory_bytes=8 << 30),
        "created_ms": created_ms, "took_s": 1.0, "complete": True, "concurrency": 4, "target": LatencyTarget(),
        "coefficients": {"row": row}, "held_out_median_error": 0.05, "held_out_p95_error": 0.1,
        "cross_validated_median_error": 0.05, "largest": {},
    }  # fmt: skip
    return StoredCalibration(endpoint_id=endpoint_id, result=Calibration(**(values | changes)))


def test_the_newest_of_the_same_model_counts_whatever_the_order_of_files(tmp_path):
    machines = [Hardware(processor=name, cores=2, memory_bytes=8 << 30) for name in "ab"]
    keep(tmp_path, stored(0.2, created_ms=5, hardware=machines[0]))
    keep(tmp_path, stored(0.1, created_ms=3, hardware=machines[1]))
    (tmp_path / "broken.json").write_text("{")
    costs = Costs()
    costs.load(tmp_path)
    assert costs.of("e1", IRIS) == CostView(coefficients={"row": 0.2}, uncertainty=0.05)
    costs.note(stored(0.3, created_ms=9))
    assert costs.of("e1", IRIS).coefficients == {"row": 0.3}


def test_another_endpoint_entity_model_or_version_has_none():
    costs = Costs()
    for other in (
        {"endpoint_id": "e2"}, {"served_entity": "x"}, {"model_uri": "models:/iris/2"}, {"model_version": "2"},
    ):  # fmt: skip
        costs.note(stored(0.1, **other))
    assert costs.of("e1", IRIS) is None


def test_without_a_folder_nothing_is_known(tmp_path):
    costs = Costs()
    costs.load(tmp_path / "missing")
    assert costs.of("e1", IRIS) is None
