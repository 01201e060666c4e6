"""What is shown of a calibration: tables, sentences and a picture, for rows and for tokens."""

import pytest
from rich.console import Console

from steelyard.cli.cost_map import cost_of, cost_table, draw, summary, windows_table
from steelyard.policy.units import Term


def result(**changes):
    window = {
        "mix": "reads",
        "concurrency": 8,
        "held_out": False,
        "in_target": True,
        "seconds": 2.0,
        "predicted_s": 2.2,
    }
    values = {
        "endpoint": "chat", "served_entity": "chat-1", "hardware": {"processor": "P"}, "complete": False,
        "concurrency": 8, "target": {"first_token_s": 2.0, "per_token_s": 0.2},
        "coefficients": {"request": 1.5, "input": 0.25, "output": 5.0, "context": 0.001},
        "held_out_median_error": 0.05, "held_out_p95_error": 0.12,
        "largest": {"input_tokens": 900, "output_tokens": 120}, "notes": ["Something to know."],
        "windows": [window, {**window, "mix": "random 1", "held_out": True, "predicted_s": 1.9}],
    }  # fmt: skip
    return values | changes


def text_of(table):
    screen = Console(width=200)
    with screen.capture() as captured:
        screen.print(table)
    return captured.get()


def test_costs_are_shown_in_amounts_that_people_can_read():
    text = text_of(cost_table(result()))
    assert [line.split() for line in text.splitlines()[1:3]] == [
        ["request", "1.5", "1.5", "ms"],
        ["1,000", "input", "tokens", "250", "250", "ms"],
    ]
    assert "1,000 rows" not in text
    assert cost_of(result()).coefficients[Term.CONTEXT] == 0.001


def test_windows_show_what_was_held_out_and_how_far_off_it_was():
    lines = text_of(windows_table(result())).splitlines()
    assert lines[1].split() == ["reads", "8", "2.00", "s", "2.20", "s", "+10.0%"]
    assert lines[2].split()[-4:] == ["s", "-5.0%", "held", "out"]


def test_sentences_tell_the_error_first():
    lines = summary(result())
    assert lines[0] == "Mixes that it had not seen are predicted to within 5.0% (median) and 12.0% (p95)."
    assert "first token 2 s, per token 200 ms" in lines[1]
    assert "time was up" in lines[2]
    assert "900 input tokens, 120 output tokens" in lines[3]
    assert lines[-1] == "Something to know."
    assert "unknown" in summary(result(held_out_median_error=None))[0]


@pytest.mark.parametrize(
    "changes", [{}, {"largest": {"rows": 500}, "coefficients": {"request": 0.1, "row": 0.01}}, {"windows": []}]
)
def test_a_map_is_drawn_for_tokens_and_for_rows(tmp_path, changes):
    pytest.importorskip("matplotlib")
    path = tmp_path / "deep" / "map.png"
    assert draw(result(**changes), path)
    assert path.read_bytes().startswith(b"\x89PNG")
