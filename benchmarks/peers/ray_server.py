"""Ray Serve with one replica: `python ray_server.py MODEL_FOLDER PORT SCRATCH_FOLDER`.

Access logs are off and the method is async. Ray's own switches for throughput come from the environment.
"""

import sys
import time

import numpy
import ray
from native_model import load_predict
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=1, max_ongoing_requests=100, ray_actor_options={"num_cpus": 0.1})
class Classic:
    def __init__(self, folder: str) -> None:
        self.model = load_predict(folder)

    async def __call__(self, request: Request) -> dict[str, list]:
        body = await request.json()
        return {"predictions": self.model(numpy.asarray(body["data"], dtype=numpy.float64)).tolist()}


if __name__ == "__main__":
    folder, port, scratch = sys.argv[1:4]
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 * 1024 * 1024,
        _temp_dir=scratch,
        log_to_driver=False,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)}, logging_config={"enable_access_log": False})
    serve.run(Classic.bind(folder), route_prefix="/")
    while True:
        time.sleep(1)
