"""MLflow's ChatModel: answers by rule, whole and piece by piece."""

from mlflow.models import set_model
from mlflow.pyfunc import ChatModel
from mlflow.types.llm import (
    ChatChoice,
    ChatChoiceDelta,
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatCompletionResponse,
    ChatMessage,
)


def _reply(messages, params):
    return f"{len(messages)} said, last: {messages[-1].content} ({params.temperature}, {params.max_tokens})"


class Echo(ChatModel):
    def predict(self, context, messages, params):
        message = ChatMessage(role="assistant", content=_reply(messages, params))
        return ChatCompletionResponse(choices=[ChatChoice(index=0, message=message)], model="echo", id="1", created=1)

    def predict_stream(self, context, messages, params):
        for word in _reply(messages, params).split(" "):
            delta = ChatChoiceDelta(role="assistant", content=word)
            yield ChatCompletionChunk(choices=[ChatChunkChoice(index=0, delta=delta)], model="echo", id="1", created=1)


set_model(Echo())
