"""What a replica under load has got done, counted as it happens, so that windows may cut through requests.

`lanes.py` tells every event; `runner.py` takes the difference between two moments. A prompt counts when its first
token comes: replicas compute prompts one after the other, so that those which wait have not been worked on. A token of
output counts when it comes; what the replica says at a request's end corrects what was assumed of it. No clock, no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from steelyard.policy.calibration_grid import Result
from steelyard.policy.calibration_shapes import Shape
from steelyard.policy.units import TERMS, Features, Term, term_values

_REQUEST, _OUTPUT, _CONTEXT = TERMS.index(Term.REQUEST), TERMS.index(Term.OUTPUT), TERMS.index(Term.CONTEXT)
_FEW_TOKENS = 4  # of output: fewer say nothing about the time per token


@dataclass(slots=True)
class Sent:
    """One request under way. `shape` is what was asked; its prompt is an estimate until the replica has counted it."""

    shape: Shape
    sent_s: float
    first_s: float | None = None
    last_s: float = 0.0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """What the replica said of a finished request."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0


@dataclass(slots=True)
class Latencies:
    """Of requests that were sent since `since_s`."""

    since_s: float
    first_token_s: list[float] = field(default_factory=list)
    per_token_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    finished: int = 0
    failed: int = 0
    fault: str = ""


class Progress:
    """The running sums, and the latencies since the last `begin`."""

    def __init__(self) -> None:
        self._totals = [0.0] * len(TERMS)
        self._under_way: dict[int, Sent] = {}
        self._seen = Latencies(0.0)
        self.finished_total = 0
        self.given_up_total = 0  # the replica may have finished them all the same

    @property
    def finished(self) -> int:
        """Requests of this run that were answered."""
        return self._seen.finished

    @property
    def failed(self) -> int:
        return self._seen.failed

    def begin(self, now_s: float) -> None:
        """Latencies and counts start again; sums go on."""
        self._seen = Latencies(now_s)

    def older(self) -> int:
        """Requests still under way that were sent before this run."""
        return sum(sent.sent_s < self._seen.since_s for sent in self._under_way.values())

    def sent(self, shape: Shape, now_s: float) -> Sent:
        sent = Sent(shape, now_s)
        self._under_way[id(sent)] = sent
        return sent

    def tokens(self, sent: Sent, count: int, now_s: float) -> None:
        """`count` more tokens of output came; with the first of them the prompt is done."""
        if sent.first_s is None:
            sent.first_s = now_s
            self._add(_of_prompt(sent.shape), 1.0)
            if sent.sent_s >= self._seen.since_s:
                self._seen.first_token_s.append(now_s - sent.sent_s)
        sent.last_s = now_s
        self._write(sent, count)

    def answered(self, sent: Sent, counted: Counted | None, now_s: float) -> None:
        """The whole answer came. `counted` None: of rows."""
        del self._under_way[id(sent)]
        self.finished_total += 1
        if counted is None:
            self._add(sent.shape.features, 1.0)
        else:
            self._correct(sent, counted)
        if sent.sent_s >= self._seen.since_s:
            self._seen.finished += 1
            self._seen.whole_s.append(now_s - sent.sent_s)
            self._note_gap(sent)

    def failed_with(self, sent: Sent, fault: str) -> None:
        del self._under_way[id(sent)]
        if sent.sent_s >= self._seen.since_s:
            self._seen.failed += 1
            self._seen.fault = fault

    def given_up(self, sent: Sent) -> None:
        """We ended it ourselves."""
        del self._under_way[id(sent)]
        self.given_up_total += 1

    def totals(self) -> tuple[float, ...]:
        return tuple(self._totals)

    def result(self, before: tuple[float, ...], after: tuple[float, ...], seconds: float) -> Result:
        """Of the window between two `totals`."""
        seen = self._seen
        for sent in self._under_way.values():
            if sent.sent_s >= seen.since_s:
                self._note_gap(sent)
        return Result(
            totals=tuple(max(0.0, late - early) for early, late in zip(before, after, strict=True)),
            seconds=seconds,
            first_token_s=slowest_but_a_tenth(seen.first_token_s),
            per_token_s=slowest_but_a_tenth(seen.per_token_s),
            whole_s=slowest_but_a_tenth(seen.whole_s),
            finished=seen.finished,
            failed=seen.failed,
            fault=seen.fault,
        )

    def _note_gap(self, sent: Sent) -> None:
        if sent.first_s is not None and sent.output_tokens > _FEW_TOKENS:
            self._seen.per_token_s.append((sent.last_s - sent.first_s) / (sent.output_tokens - 1))

    def _write(self, sent: Sent, count: float) -> None:
        prompt = sent.shape.input_tokens + sent.shape.cached_tokens + sent.shape.image_tokens
        self._totals[_OUTPUT] += count
        self._totals[_CONTEXT] += count * (prompt + sent.output_tokens + count / 2)
        sent.output_tokens += int(count)

    def _correct(self, sent: Sent, counted: Counted) -> None:
        """Takes out what was assumed and puts in what was."""
        if sent.first_s is not None:
            self._add(_of_prompt(sent.shape), -1.0)
        assumed = Features(**_sizes(sent.shape), output_tokens=sent.output_tokens)
        cached = min(counted.cached_tokens, counted.prompt_tokens)
        images = sent.shape.image_tokens
        text = max(0, counted.prompt_tokens - cached - images)
        shape = Shape(input_tokens=text, cached_tokens=cached, image_tokens=images)
        self._add(_of_prompt(shape), 1.0)
        known = Features(**_sizes(shape), output_tokens=counted.output_tokens)
        self._totals[_OUTPUT] += known.output_tokens - assumed.output_tokens
        self._totals[_CONTEXT] += term_values(known)[_CONTEXT] - term_values(assumed)[_CONTEXT]

    def _add(self, features: Features, sign: float) -> None:
        for place, value in enumerate(term_values(features)):
            self._totals[place] += sign * value


def _of_prompt(shape: Shape) -> Features:
    return Features(**_sizes(shape))


def _sizes(shape: Shape) -> dict[str, float]:
    return {
        "input_tokens": shape.input_tokens,
        "cached_tokens": shape.cached_tokens,
        "image_tokens": shape.image_tokens,
    }


def slowest_but_a_tenth(values: list[float]) -> float | None:
    return sorted(values)[int(0.9 * (len(values) - 1))] if values else None
