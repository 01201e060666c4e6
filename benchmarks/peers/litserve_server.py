"""LitServe with one worker on the CPU: `python litserve_server.py MODEL_FOLDER PORT`.

Batching is off, since it adds a wait. Decoding and encoding stay in the web process, as LitServe has it.
"""

import sys

import litserve
import numpy
from native_model import load_predict


class Classic(litserve.LitAPI):
    def setup(self, device):
        self.model = load_predict(sys.argv[1])

    def decode_request(self, request):
        return numpy.asarray(request["data"], dtype=numpy.float64)

    def predict(self, rows):
        return self.model(rows)

    def encode_response(self, output):
        return {"predictions": output.tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(Classic(), accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", generate_client_file=False)
