"""One attempt's charge on its replica: opened by the decision, worked off while tokens stream, settled exactly once.

The exchange makes one for each attempt and tells it what passes. Here the estimate meets what the replica reports: the
ledger gets the actual cost, the weigher and the chooser learn from it. Nothing here talks to anybody.
"""

from __future__ import annotations

from steelyard.contracts.usage import RequestUsage
from steelyard.policy.ledger import Entry
from steelyard.policy.routing import Chooser, Decision
from steelyard.policy.units import Features
from steelyard.router.flow import Flow
from steelyard.router.table import Entity, Replica
from steelyard.router.weigh import Price, Weigher, Weight, features_of


class Charge:
    """`usage`: the header's value that came last; empty: none came. `price`: of a success whose usage is known.
    `took_s`: from the decision to its end, once it is settled."""

    __slots__ = (
        "_charged_mmu",
        "_chooser",
        "_decision",
        "_entry",
        "_events",
        "_flow",
        "_per_event_mmu",
        "_principal",
        "_streams",
        "_weigher",
        "_weight",
        "_worked_mmu",
        "price",
        "took_s",
        "usage",
    )

    def __init__(self, decision: Decision[Replica], entity: Entity, weight: Weight, principal: str) -> None:
        self._decision = decision
        self._entry: Entry = decision.entry
        self._chooser: Chooser = entity.chooser
        self._flow: Flow = entity.flow
        self._charged_mmu = decision.entry.charged_mmu
        self._flow.begin(self._charged_mmu)
        self._weigher: Weigher = entity.weigher
        self._weight = weight
        self._principal = principal
        self._streams = False
        self._events = 0
        self._per_event_mmu = 0.0
        self._worked_mmu = 0.0
        self.usage = b""
        self.price: Price | None = None
        self.took_s = 0.0

    def begin_stream(self) -> None:
        """The first token is there, and so the prompt is computed."""
        weight = self._weight
        self._streams = True
        if not weight.choices:
            return
        known = self._weigher.price(self.usage) if self.usage else None
        estimate = weight.ask.features
        if known is not None and known.usage.prompt_tokens:
            prefill = features_of(known.usage, 0.0)
        else:
            cached = min(self._decision.cached_tokens, estimate.input_tokens)
            prefill = Features(input_tokens=estimate.input_tokens - cached, cached_tokens=cached)
        cost = self._weigher.cost
        self._worked_mmu = float(cost.mmu(prefill))
        prefill.output_tokens = max(1.0, estimate.output_tokens)
        self._per_event_mmu = (cost.mmu(prefill) - self._worked_mmu) / prefill.output_tokens
        self._work(int(self._worked_mmu))
        self._entry.begin_answer()

    def stream(self, events: int) -> None:
        """So many more events of its stream went by, about a token each."""
        if not events or not self._worked_mmu:
            return
        self._events += events
        before_mmu = int(self._worked_mmu)
        self._worked_mmu += events * self._per_event_mmu
        self._work(int(self._worked_mmu) - before_mmu)

    def settle(self, now_s: float, succeeded: bool, served: bool) -> int:
        """The attempt is over. What it cost: as reported, else what was seen of it, else what was thought of one that
        was `served`."""
        entry = self._entry
        cached_tokens: float | None = None
        actual_mmu: int | None = None
        seen_mmu = entry.charged_mmu - entry.remaining_mmu
        if not seen_mmu and served:
            seen_mmu = entry.charged_mmu
        if succeeded:
            price = self._weigher.price(self.usage) if self.usage else None
            if price is not None:
                usage = price.usage
                if usage.output_tokens is None and self._events:
                    usage = with_output(usage, self._events)
                    price = self._weigher.price_of(usage)
                self.price = price
                actual_mmu = price.mmu
                if usage.cached_tokens is not None:
                    cached_tokens = float(usage.cached_tokens)
                self._weigher.learn(self._weight, usage, self._principal)
            elif self._events:
                actual_mmu = seen_mmu
        entry.settle(actual_mmu)
        self.took_s = now_s - self._decision.at_s
        self._flow.end(self._charged_mmu, self.took_s, served)
        self._chooser.settled(self._decision, self._weight.ask, now_s, cached_tokens)
        return seen_mmu if actual_mmu is None else actual_mmu

    def thought(self) -> RequestUsage:
        """What it took, as far as can be told of one whose usage is not known: a stream by its events."""
        estimate = self._weight.ask.features
        output_tokens = self._events if self._streams else int(estimate.output_tokens)
        return RequestUsage(
            prompt_tokens=int(estimate.input_tokens), output_tokens=output_tokens, rows=int(estimate.rows)
        )

    def _work(self, step_mmu: int) -> None:
        """More than was charged raises the charge: a long answer must not look done."""
        entry = self._entry
        entry.raise_to(int(self._worked_mmu))
        entry.progress(step_mmu)


def with_model_units(body: bytes, price: Price) -> bytes:
    """A whole JSON answer, in whose `usage` the model units stand too. Within a JSON string the quotes would differ."""
    at = body.rfind(b'"usage":{')
    if at < 0:
        return body
    at += len(b'"usage":{')
    end = b"" if body[at : at + 1] == b"}" else b","
    return b'%b"model_units":%b%b%b' % (body[:at], price.label, end, body[at:])


def with_output(usage: RequestUsage, output_tokens: int) -> RequestUsage:
    return RequestUsage(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=output_tokens,
        image_tokens=usage.image_tokens,
        rows=usage.rows,
    )
