"""What `steelyard up` does while it waits for the endpoints."""

import pytest

from steelyard.cli.failures import CliError
from steelyard.cli.progress import LineProgress
from steelyard.cli.session import _until_settled

pytestmark = pytest.mark.anyio
READY = {"name": "x", "state": {"ready": "READY", "config_update": "NOT_UPDATING"}}


class Flaky:
    """A client whose platform answers only every second time."""

    def __init__(self, *answers: list) -> None:
        self.answers = list(answers)
        self.calls = 0

    def endpoints(self) -> list:
        self.calls += 1
        if self.calls % 2:
            raise CliError("The store does not answer; try again in a moment.")
        return self.answers.pop(0)


async def test_a_platform_that_does_not_answer_for_a_moment_is_asked_again(monkeypatch):
    monkeypatch.setattr("steelyard.cli.session.POLL_S", 0.001)
    working = {"name": "x", "state": {"ready": "NOT_READY", "config_update": "IN_PROGRESS"}}
    assert await _until_settled(Flaky([working], [READY]), LineProgress(), 10) == [READY]


async def test_a_platform_that_never_answers_is_left_alone_in_the_end(monkeypatch):
    monkeypatch.setattr("steelyard.cli.session.POLL_S", 0.001)
    assert await _until_settled(Flaky(), LineProgress(), 0) == []
