"""What an embedding model returned, as an array of vectors: bare, or in the shape of OpenAI's reply.

Called by `answer.py`; the reply is rendered anew, so that it follows the request's encoding and dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import ModelFailed


def embeddings_of(output: Any) -> tuple[NDArray[Any], int]:
    """Vectors of shape (texts, dimension), and how many tokens the texts were: 0 where the model does not say.

    Raises ModelFailed when the output is neither.
    """
    tokens = 0
    try:
        if isinstance(output, list) and len(output) == 1 and isinstance(output[0], dict):
            output = output[0]
        if isinstance(output, dict):
            tokens = int(output.get("usage", {}).get("prompt_tokens", 0))
            output = [item["embedding"] for item in sorted(output["data"], key=lambda item: int(item["index"]))]
        vectors = np.asarray(output)
        return (vectors if vectors.dtype.kind == "f" else vectors.astype(np.float64)), tokens
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFailed(f"The model returned no vector of floats for each text ({type(error).__name__}).") from error
