"""Models that wait and that talk: an asynchronous one, a ChatModel and a ResponsesAgent, each also piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.zoo.case import ROWS, Case, items_case, plain, table_case
from support.zoo.data import words
from support.zoo.own_code import save_code

STREAMED = 5


def waiting(folder: Path) -> Case:
    path = save_code(folder, "waiting_model.py", input_example=["one", "two"])
    return items_case(path, words(51, ROWS), "hints")


def coroutine(folder: Path) -> Case:
    """Its `predict` itself is asynchronous, which MLflow hands through unawaited."""
    import pandas as pd
    from mlflow.models import infer_signature

    texts = words(54, ROWS)
    frame = pd.DataFrame({"text": pd.Series(texts, dtype=object), "weight": [float(len(text)) for text in texts]})
    path = save_code(folder, "coroutine_model.py", signature=infer_signature(frame))
    return table_case(path, frame)


def chat_model(folder: Path) -> Case:
    bodies = [_conversation(text, number) for number, text in enumerate(words(52, ROWS))]
    return _talking(save_code(folder, "chat_model.py"), bodies)


def responses_agent(folder: Path) -> Case:
    bodies = [
        {"input": [{"role": "user", "content": text}], "custom_inputs": {"number": number}}
        for number, text in enumerate(words(53, ROWS))
    ]
    return _talking(save_code(folder, "agent_model.py"), bodies)


def _conversation(text: str, number: int) -> dict[str, Any]:
    earlier = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "then"}] * (number % 3)
    return {
        "messages": [*earlier, {"role": "user", "content": text}],
        "temperature": (number % 11) / 10,
        "max_tokens": number + 1,
    }


def _talking(model: Path, bodies: list[dict[str, Any]]) -> Case:
    import mlflow
    import mlflow.pyfunc

    mlflow.tracing.disable()
    loaded = mlflow.pyfunc.load_model(str(model))
    return Case(
        model=str(model),
        layout="messages",
        rows=bodies,
        expected=[plain(loaded.predict(body)) for body in bodies],
        streams=[[plain(chunk) for chunk in loaded.predict_stream(body)] for body in bodies[:STREAMED]],
    )


MODELS: dict[str, Callable[[Path], Case]] = {
    "python-asynchronous": waiting,
    "python-coroutine": coroutine,
    "agent-chat-model": chat_model,
    "agent-responses": responses_agent,
}
