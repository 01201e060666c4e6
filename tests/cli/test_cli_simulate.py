"""`steelyard simulate` runs small comparisons in seconds, and their last JSON line is the verdict."""

import csv
import json
import time
from pathlib import Path

import pytest

from steelyard.cli.main import run


def test_json_ends_with_the_worst_cell(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.process_time()
    assert (
        run(["simulate", "routing", "--trace", "shared-prompt", "--replicas", "2,4", "--requests", "30", "--json"]) == 0
    )
    assert time.process_time() - began < 5
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2 * 5 + 1
    assert {(line["trace"], line["replicas"]) for line in lines[:-1]} == {("shared-prompt", 2), ("shared-prompt", 4)}
    own = {line["replicas"]: line for line in lines[:-1] if line["policy"] == "model-units"}
    ratios = [
        own[n]["ttft_p99_s"] / min(line["ttft_p99_s"] for line in lines[:-1] if line["replicas"] == n) for n in own
    ]
    last = lines[-1]
    assert last["cells"] == 2
    assert last["worst_ttft_p99_vs_best"] == pytest.approx(max(ratios))
    assert last["worst_cell_vs_best"] == max(last["worst_ttft_p99_vs_best"], last["worst_goodput_vs_best"]) >= 1.0


def test_the_table_fits_and_plots_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    options = ["--trace", "uniform-short", "--policy", "model-units", "--policy", "round-robin", "--requests", "20"]
    assert run(["simulate", "routing", *options, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "uniform-short × 8" in shown
    assert "of 1 cells" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "ttft_p99_s.png").stat().st_size > 1_000
    assert not (tmp_path / "hit_of_ideal.png").exists()  # nothing could be reused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--trace", "none"], "No trace is named none"),
        (["--policy", "best"], "No policy is named best"),
        (["--replicas", "many"], "many"),
        (["--utilisation", "0"], "utilisation"),
        (["--traces", "/nonexistent"], "No trace in"),
    ],
)
def test_wrong_options_are_named(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "routing", *options]) == 2
    assert said in capsys.readouterr().err


def test_autoscaling_ends_with_its_verdict_and_writes_scores_and_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    chosen = ["--load", "step", "--autoscaler", "steelyard", "--autoscaler", "hpa-cpu", "--autoscaler", "static-peak"]
    assert run(["simulate", "autoscaling", *chosen, "--json", "--out", str(tmp_path)]) == 0
    *scores, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [score["autoscaler"] for score in scores] == ["steelyard", "hpa-cpu", "static-peak"]
    ours, hpa, _ = scores
    assert last["rejections_vs_best_conventional"] == pytest.approx(ours["rejected"] / hpa["rejected"])
    assert last["saved_vs_static_peak"] is None  # no bursty load was asked for
    assert last["lost"] == []
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert [float(row["rejected"]) for row in rows] == pytest.approx([s["rejected"] for s in scores], rel=1e-5)
    assert (tmp_path / "step.png").stat().st_size > 10_000


def test_the_table_of_autoscalers_fits_and_names_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--load", "step", "--autoscaler", "steelyard", "--autoscaler", "knative-kpa"]
    assert run(["simulate", "autoscaling", *chosen]) == 0
    table, _, after = capsys.readouterr().out.partition("\nLost")
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table
    assert "step: knative-kpa missed" in after


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--load", "none"], "No load is named none"),
        (["--autoscaler", "best"], "No autoscaler is named best"),
        (["--days", "0"], "above 0"),
        (["--traces", "/nonexistent"], "No trace in"),
    ],
)
def test_wrong_options_of_autoscaling_are_named(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", "autoscaling", *options]) == 2
    assert said in capsys.readouterr().err
