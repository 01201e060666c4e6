"""MLflow's ResponsesAgent: asks two tools at once on an event loop, answers whole and piece by piece."""

import asyncio

from mlflow.models import set_model
from mlflow.pyfunc import ResponsesAgent
from mlflow.types.responses import ResponsesAgentResponse, ResponsesAgentStreamEvent


async def _tool(name, text):
    await asyncio.sleep(0.001)
    return f"{name} of {len(text)}"


async def _ask_tools(text):
    return await asyncio.gather(_tool("length", text), _tool("count", text.split()))


class Agent(ResponsesAgent):
    def _answer(self, request):
        found = asyncio.run(_ask_tools(request.input[-1].content))
        return f"{' and '.join(found)}; {request.custom_inputs}"

    def predict(self, request):
        item = self.create_text_output_item(text=self._answer(request), id="m1")
        return ResponsesAgentResponse(output=[item], custom_outputs=request.custom_inputs)

    def predict_stream(self, request):
        text = self._answer(request)
        for word in text.split(" "):
            yield ResponsesAgentStreamEvent(**self.create_text_delta(delta=word, item_id="m1"))
        item = self.create_text_output_item(text=text, id="m1")
        yield ResponsesAgentStreamEvent(type="response.output_item.done", item=item)


set_model(Agent())
