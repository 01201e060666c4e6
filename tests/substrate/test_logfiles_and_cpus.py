"""Logs stay within their bounds; the CPU share is what the control group allows."""

from steelyard.substrate import logfiles
from steelyard.substrate.cpus import cpu_share, thread_variables


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


def test_share_is_the_quota_when_that_is_less_than_the_cores(tmp_path):
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert cpu_share(tmp_path) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpu_share(tmp_path) == cpu_share(tmp_path / "nothing")


def test_thread_counts_do_not_override_what_was_given():
    made = thread_variables({"OMP_NUM_THREADS": "7"}, 2)
    assert "OMP_NUM_THREADS" not in made
    assert made["MKL_NUM_THREADS"] == "2"
