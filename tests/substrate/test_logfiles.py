"""Logs stay within their bounds."""

from steelyard.substrate import logfiles


def test_log_within_its_limit_is_left_alone(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("one\ntwo\n")
    logfiles.bound(log, 100)
    assert log.read_text() == "one\ntwo\n"


def test_outgrown_log_keeps_its_last_lines_and_its_writer_goes_on(tmp_path):
    log = tmp_path / "log.txt"
    with log.open("ab", buffering=0) as writer:
        for number in range(100):
            writer.write(f"line {number}\n".encode())
        logfiles.bound(log, 50)
        writer.write(b"after\n")
    assert log.read_text() == "after\n"
    kept = logfiles.previous(log).read_text()
    assert kept.startswith("line ")
    assert kept.endswith("line 99\n")
    assert len(kept) <= 50


def test_log_is_emptied_even_where_its_last_part_cannot_be_kept(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("line\n" * 100)
    logfiles.previous(log).mkdir()  # as on a full disk, writing there fails
    logfiles.bound(log, 50)
    assert log.read_text() == ""


def test_tail_starts_at_a_line(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("first line\nsecond line\n")
    assert logfiles.tail(log, 15) == b"second line\n"
    assert logfiles.tail(tmp_path / "none", 15) == b""


def test_the_last_words_are_what_others_than_us_printed(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text('first\n{"event":"ours"}\n  leaving now\n\n{"event":"ours too"}\n')
    assert logfiles.last_words(log) == "first / leaving now"
    assert logfiles.last_words(log, shown=5) == "g now"
    assert logfiles.last_words(tmp_path / "none") == ""
