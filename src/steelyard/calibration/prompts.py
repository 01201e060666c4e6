"""Requests for a language model, of wanted token counts: prompts of common words, each one new from its first word.

`lanes.py` sends them. How many tokens a word is, and how many the chat template adds, is learnt from what the replica
counts. A prompt with a head that shall be found in a cache begins with the same words each time.
"""

from __future__ import annotations

from random import Random

import msgspec

from steelyard.policy.calibration_shapes import Shape

CHAT_PATH = b"/v1/chat/completions"
COMPLETIONS_PATH = b"/v1/completions"
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea body information "
    "back parent face others level office door health person art war history party result change morning reason "
    "research girl guy moment air teacher force education"
)
_WORDS = _TEXT.split()


class Prompts:
    """`task`: as the replica names it; what is no chat model gets plain prompts."""

    def __init__(self, task: str | None, seed: int) -> None:
        self._chat = task != "llm/v1/completions"
        self._random = Random(seed)
        self._seen: dict[int, float] = {}  # words of a prompt to its tokens
        self._per_word = 1.1
        self._around = 10.0  # tokens that the template adds

    @property
    def path(self) -> bytes:
        return CHAT_PATH if self._chat else COMPLETIONS_PATH

    def learn(self, words: int, prompt_tokens: int) -> None:
        """A prompt of so many words had so many tokens: the line through all that were seen."""
        self._seen[words] = prompt_tokens
        if len(self._seen) < 2:
            return
        mean_words = sum(self._seen) / len(self._seen)
        mean_tokens = sum(self._seen.values()) / len(self._seen)
        spread = sum((known - mean_words) ** 2 for known in self._seen)
        together = sum((known - mean_words) * (tokens - mean_tokens) for known, tokens in self._seen.items())
        self._per_word = max(0.2, together / spread)
        self._around = max(0.0, mean_tokens - self._per_word * mean_words)

    def body(self, shape: Shape) -> tuple[bytes, Shape, int]:
        """The body, the shape that it is expected to have (a template may be longer than a short prompt), its words."""
        head = round(shape.cached_tokens / self._per_word)
        words = max(1, round((shape.input_tokens + shape.cached_tokens - self._around) / self._per_word) - head)
        text = _words(head, Random(head)) + _words(words, self._random)
        tokens = round(self._around + self._per_word * (head + words))
        expected = Shape(
            input_tokens=max(1, tokens - shape.cached_tokens),
            output_tokens=max(1, shape.output_tokens),
            cached_tokens=shape.cached_tokens,
        )
        return self._encoded(" ".join(text), expected.output_tokens), expected, head + words

    def probe(self, words: int) -> bytes:
        """A body for one token of output, not streamed; the same one each time."""
        text = " ".join(_words(words, Random(words)))
        asked: dict[str, object] = {"messages": [{"role": "user", "content": text}]} if self._chat else {"prompt": text}
        return msgspec.json.encode({**asked, "max_tokens": 1})

    def _encoded(self, text: str, output_tokens: int) -> bytes:
        asked: dict[str, object] = {"messages": [{"role": "user", "content": text}]} if self._chat else {"prompt": text}
        return msgspec.json.encode(
            {
                **asked,
                "max_tokens": output_tokens,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )


def _words(count: int, random: Random) -> list[str]:
    return random.choices(_WORDS, k=count)
