"""OpenAI's dialect: chat completions and text completions, parsed into `ChatRequest` / `CompletionRequest` and rendered
as whole replies or server-sent events that the official SDK reads."""

from steelyard.protocols.openai.chat import ChatRequest, parse_chat
from steelyard.protocols.openai.completions import CompletionRequest, parse_completion
from steelyard.protocols.openai.fields import Sampling
from steelyard.protocols.openai.render import ChatReply, Choice, CompletionReply, Reply, Usage
from steelyard.protocols.openai.render_logprobs import ScoredToken, TokenView

__all__ = [
    "ChatReply",
    "ChatRequest",
    "Choice",
    "CompletionReply",
    "CompletionRequest",
    "Reply",
    "Sampling",
    "ScoredToken",
    "TokenView",
    "Usage",
    "parse_chat",
    "parse_completion",
]
