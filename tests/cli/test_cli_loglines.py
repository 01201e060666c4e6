"""How the command line shows the lines of a replica's log."""

import json

from steelyard.cli.loglines import readable


def line(**values) -> str:
    return json.dumps({"process": "replica", "timestamp": "2026-01-02T03:04:05.678Z", "level": "info", **values})


def test_a_line_of_ours_is_told_in_words_without_what_the_reader_knows():
    told = readable(line(event="warmed_up", endpoint="iris", replica="iris-1", example=True, seconds=0.5, reason=""))
    assert [text.split(" ", 1)[1] for text in told] == ["warmed_up example=true seconds=0.5"]
    assert [len(part) for part in told[0].split(" ")[0].split(":")] == [2, 2, 2]


def test_a_traceback_keeps_its_lines():
    told = readable(line(event="model_load_failed", level="error", trace='Traceback:\n  File "m.py"\nOSError: gone\n'))
    assert told[0].endswith("error model_load_failed")
    assert told[1:] == ["Traceback:", '  File "m.py"', "OSError: gone"]


def test_what_a_model_printed_passes_unchanged():
    own = ["loading…", '{"event": "epoch", "loss": 0.5}', '{"broken', "[1, 2]", "", '{"event": 1, "process": 2}']
    assert readable("\n".join(own)) == own


def test_a_timestamp_of_an_unknown_form_is_shown_as_it_is():
    assert readable(line(event="x", timestamp="yesterday")) == ["yesterday x"]
