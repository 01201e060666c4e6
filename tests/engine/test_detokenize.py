"""Ids to text as they come: whole characters, no piece of a stop string, and every token with its own text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.engine.detokenize import Detokenizer, TokenBytes
from steelyard.errors import ModelLoadError
from support.language_models import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
TABLE = TokenBytes(TOKENIZER)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def stream(ids: list[int], stop: tuple[str, ...] = ()) -> tuple[list[str], list[int], bool]:
    """Texts as released, the tokens that came with them, and whether a stop string ended it."""
    detokenizer = Detokenizer(TABLE, stop)
    texts, tokens = [], []
    for token in ids:
        released = detokenizer.push(token, token)
        texts.append(released.text)
        tokens += released.tokens
        if released.stopped:
            return texts, tokens, True
    released = detokenizer.finish()
    return [*texts, released.text], tokens + released.tokens, released.stopped


@settings(deadline=None)
@given(st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=40))
def test_any_ids_give_the_tokenizers_own_decoding(ids):
    texts, tokens, stopped = stream(ids)
    assert "".join(texts) == TOKENIZER.decode(ids, skip_special_tokens=True)
    assert tokens == ids
    assert not stopped


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_survives_and_no_piece_of_a_character_is_shown(text):
    texts, _, _ = stream(encode(text))
    assert "".join(texts) == text
    assert all("\ufffd" not in piece for piece in texts) or "\ufffd" in text


def test_an_emoji_comes_whole():
    ids = encode("a🎉b")
    texts, _, _ = stream(ids)
    assert len(ids) == 6
    assert [text for text in texts if text] == ["a", "🎉", "b"]


def test_a_character_cut_off_by_the_end_is_marked():
    texts, tokens, _ = stream(encode("a🎉")[:-1])
    assert "".join(texts) == "a\ufffd"
    assert len(tokens) == 4


def test_a_stop_string_across_tokens_is_never_shown():
    ids = encode("ABCDEFGHIJKL")
    texts, tokens, stopped = stream(ids, ("DEFGHIJ",))
    assert stopped
    assert texts[:3] == ["A", "B", "C"]
    assert "".join(texts) == "ABC"
    assert tokens == encode("ABC")


def test_a_false_start_of_a_stop_string_is_released_late_but_whole():
    texts, _, stopped = stream(encode("ABCDEFxyz"), ("DEFGHIJ",))
    assert not stopped
    assert "".join(texts) == "ABCDEFxyz"
    assert texts[3:7] == ["", "", "", "DEFx"]


def test_the_stop_string_that_is_completed_first_wins():
    assert "".join(stream(encode("one two three"), ("three", "wo"))[0]) == "one t"
    assert "".join(stream(encode("abcd"), ("bcd", "bc"))[0]) == "a"
    assert "".join(stream(encode("abcd"), ("bc", "abc"))[0]) == ""


def naive(text_after: list[str], stops: tuple[str, ...]) -> tuple[str, bool]:
    """Cut at the stop string that is completed first, looking at ever longer texts."""
    text = text_after[-1] if text_after else ""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@settings(deadline=None, max_examples=300)
@given(
    st.text("abc ", max_size=25),
    st.lists(st.text("abc ", min_size=1, max_size=4), max_size=3).map(tuple),
)
def test_stop_strings_cut_as_a_naive_search_would(text, stops):
    texts, tokens, stopped = stream(encode(text), stops)
    expected, expected_stop = naive([text], stops)
    assert ("".join(texts), stopped) == (expected, expected_stop)
    shown = "".join(texts)
    assert TOKENIZER.decode(tokens).startswith(shown)  # a token may reach beyond the cut, none lies beyond it
    assert len(TOKENIZER.decode(tokens[:-1])) < max(len(shown), 1)


def test_tokens_are_released_with_their_text_and_not_before():
    detokenizer = Detokenizer(TABLE, ("the end",))
    for token in encode("fox t"):
        released = detokenizer.push(token, token)
    assert TOKENIZER.decode(released.tokens).strip() in ("", "fox")
    rest = detokenizer.finish()
    assert rest.text.endswith("t")
    assert rest.tokens


def test_control_tokens_are_shown_only_among_candidates():
    end = TOKENIZER.token_to_id("<|im_end|>")
    assert TABLE[end] == b""
    assert TABLE.shown(end) == b"<|im_end|>"
    assert TABLE[10**6] == b""


def test_sentence_pieces_drop_the_space_that_marks_the_start():
    from tokenizers import Tokenizer, decoders, models

    vocabulary = {"\u2581a": 0, "b": 1, "\u2581": 2, "<0xF0>": 3, "<0x9F>": 4, "<0x8E>": 5, "<0x89>": 6}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    table = TokenBytes(tokenizer)
    for ids in ([0, 1, 0], [2, 2, 1], [3, 4, 5, 6, 0], [1, 3, 4]):
        detokenizer = Detokenizer(table)
        text = "".join(detokenizer.push(token, None).text for token in ids) + detokenizer.finish().text
        assert text == tokenizer.decode(ids).replace("\ufffd\ufffd", "\ufffd")


def test_an_unknown_kind_of_tokenizer_is_refused():
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.WordPiece(vocab={"a": 0}, unk_token="a"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ModelLoadError, match="WordPiece"):
        TokenBytes(tokenizer)
