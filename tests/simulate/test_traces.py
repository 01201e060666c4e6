"""Loaders read the public formats as published, from any path, and name what is wrong; scaling keeps the load."""

import json
import os
from pathlib import Path

import pytest

from steelyard.policy.units import MMU_PER_MU
from steelyard.simulate.batch_speed import BatchSpeed
from steelyard.simulate.requests import SimRequest, Trace, chain
from steelyard.simulate.reuse import ideal_cached_tokens, pooled_cached_tokens
from steelyard.simulate.scaling import Size, price, scaled
from steelyard.simulate.traces import azure, mooncake, servegen, vidur
from steelyard.simulate.traces.catalogue import RECORDED, available
from steelyard.simulate.traces.synthetic import SYNTHETIC

RECORDINGS = os.environ.get("STEELYARD_TRACES")
MODEL = BatchSpeed()


def files(folder: Path) -> Path:
    """Every format, small."""
    (folder / "AzureLLMInferenceTrace_conv.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    lines = [
        {"timestamp": 0, "input_length": 1_200, "output_length": 50, "hash_ids": [0, 1, 2]},
        {"timestamp": 1_500, "input_length": 1_536, "output_length": 9, "hash_ids": [0, 1, 3]},
    ]
    lines += [
        {"timestamp": 2_000 + n, "input_length": 1_100, "output_length": 1, "hash_ids": [0, 10 + n, 100 + n]}
        for n in range(60)
    ]
    (folder / "conversation_trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "arxiv_summarization_lengths.csv").write_text(
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n2015.0,156.0,2171,12.9\n"
    )
    clients = folder / "servegen" / "deepseek-r1"
    clients.mkdir(parents=True)
    (clients / "chunk-0-trace.csv").write_text(
        "0,0,0,,0,0\n600,2.0,0.9,Gamma,1.2,0.4166\n1200,1.0,1.0,Weibull,1.0,1.0\n"
    )
    (clients / "chunk-0-dataset.json").write_text(
        json.dumps({"0": {"input_tokens": "{40: 0.5, 80: 0.5}", "output_tokens": "{7: 1.0}"}})
    )
    (clients / "chunk-1-trace.csv").write_text("0,1,1,Gamma,1,1\n")  # an envelope without lengths
    return folder


def test_azure(tmp_path: Path) -> None:
    trace = azure.load(files(tmp_path) / "AzureLLMInferenceTrace_conv.csv", "conv")
    assert [(r.input_tokens, r.output_tokens) for r in trace.requests] == [(374, 44), (396, 109)]
    assert trace.requests[1].arrival_s == pytest.approx(4.314579)
    assert not trace.has_prefixes
    assert "Splitwise" in trace.origin


def test_mooncake_keeps_whole_blocks_and_finds_what_a_conversation_begins_with(tmp_path: Path) -> None:
    trace = mooncake.load(files(tmp_path) / "conversation_trace.jsonl", "conversation")
    first, second, third = trace.requests[:3]
    assert (len(first.blocks), len(second.blocks), len(third.blocks)) == (2, 3, 2)  # 1,200 tokens are two whole blocks
    assert first.blocks == second.blocks[:2]
    assert first.key == second.key is not None  # block 1 is theirs; block 0 is everybody's
    assert third.key != first.key
    assert ideal_cached_tokens(trace.requests, 512)[:3] == [0, 1_024, 512]


def test_vidur_draws_times_by_seed(tmp_path: Path) -> None:
    path = files(tmp_path) / "arxiv_summarization_lengths.csv"
    one, same, other = vidur.load(path, "v", 1), vidur.load(path, "v", 1), vidur.load(path, "v", 2)
    assert [(r.input_tokens, r.output_tokens) for r in one.requests] == [(3772, 54), (2015, 156)]
    assert [r.arrival_s for r in one.requests] == [r.arrival_s for r in same.requests]
    assert [r.arrival_s for r in one.requests] != [r.arrival_s for r in other.requests]


def test_servegen_draws_at_each_windows_rate_and_skips_idle_ones(tmp_path: Path) -> None:
    folder = files(tmp_path) / "servegen" / "deepseek-r1"
    trace = servegen.load(folder, "s", 1, start_s=0.0, duration_s=1_800.0)
    windows = [sum(1 for r in trace.requests if at <= r.arrival_s < at + 600) for at in (0, 600, 1_200)]
    assert windows[0] == 0
    assert windows[1] == pytest.approx(1_200, rel=0.2)
    assert windows[2] == pytest.approx(600, rel=0.2)
    assert {r.input_tokens for r in trace.requests} == {40, 80}
    assert {r.output_tokens for r in trace.requests} == {7}
    assert {r.tenant for r in trace.requests} == {0}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("AzureLLMInferenceTrace_conv.csv", "a,b\n", "does not begin"),
        ("AzureLLMInferenceTrace_conv.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnever,1,1\n", "line 2"),
        ("AzureLLMInferenceTrace_conv.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request"),
        ("conversation_trace.jsonl", '{"timestamp": 0}\n', "line 1"),
        ("conversation_trace.jsonl", "", "no request"),
        ("arxiv_summarization_lengths.csv", "a,b\n1,2\n", "num_prefill_tokens"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    loaders = [load for trace, load in available(tmp_path, 1).items() if trace not in SYNTHETIC]
    assert len(loaders) == 1
    with pytest.raises(ValueError, match=said):
        loaders[0]()


def test_the_catalogue_has_what_the_folder_has(tmp_path: Path) -> None:
    assert set(available(None, 1)) == set(SYNTHETIC)
    with pytest.raises(ValueError, match="No trace"):
        available(tmp_path, 1)
    files(tmp_path)
    names = {"azure-conversation", "mooncake-conversation", "servegen-reasoning", "vidur-summaries"}
    assert set(available(tmp_path, 1)) == names | set(SYNTHETIC)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_loads_are_drawn_by_seed_and_in_order(name: str) -> None:
    def facts(trace: Trace) -> list[tuple[float, int, int, tuple[int, ...]]]:
        return [(r.arrival_s, r.input_tokens, r.output_tokens, r.blocks) for r in trace.requests]

    trace = SYNTHETIC[name](1)
    assert facts(trace) == facts(SYNTHETIC[name](1)) != facts(SYNTHETIC[name](2))
    times = [r.arrival_s for r in trace.requests]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < trace.duration_s
    for request in trace.requests:
        assert len(request.blocks) * trace.block_tokens <= request.input_tokens
        ends = len(request.blocks) + len(request.end_blocks)
        assert ends * trace.block_tokens <= request.input_tokens + request.output_tokens


@pytest.mark.parametrize("name", ["uniform-short", "noisy-neighbour", "agents"])
@pytest.mark.parametrize("replicas", [2, 16])
def test_scaling_brings_the_wanted_load(name: str, replicas: int) -> None:
    trace = SYNTHETIC[name](1)
    size = Size(replicas, float(replicas), 0.6, share=0.2, requests_per_replica=300)
    cell = scaled(trace, size, MODEL.cost(), MODEL.kv_tokens, seed=1)
    cached = pooled_cached_tokens(cell.requests, trace.block_tokens, replicas * MODEL.kv_tokens // 2)
    mmu = sum(
        price(r, tokens, MODEL.cost())
        for r, tokens in zip(cell.requests, cached, strict=True)
        if r.arrival_s >= cell.warm_s
    )
    scored_s = cell.duration_s - cell.warm_s
    assert mmu / MMU_PER_MU / scored_s / replicas / 1_000 == pytest.approx(0.6, rel=0.2)


def test_copies_share_a_system_prompt_and_nothing_else() -> None:
    trace = SYNTHETIC["shared-prompt"](1)
    cell = scaled(trace, Size(64, 64.0, 0.7, 0.2, 50), MODEL.cost(), MODEL.kv_tokens, seed=1)
    assert cell.copies > 10
    heads = {r.blocks[:8] for r in cell.requests}
    assert len(heads) == 1
    owners: dict[int, set[int | None]] = {}
    for request in cell.requests:
        for block in request.blocks[8:]:
            owners.setdefault(block, set()).add(request.key)
    assert max(len(keys) for keys in owners.values()) == 1


def test_reuse_counts_whole_blocks_and_leaves_a_token_to_compute() -> None:
    talk = chain((), 1, 4)
    requests = [
        SimRequest(0.0, 64, 40, blocks=talk[:2], end_blocks=talk[2:3]),
        SimRequest(1.0, 96, 1, blocks=talk[:3]),  # its prompt is all known, but its last token must be computed
        SimRequest(2.0, 140, 1, blocks=talk),
        SimRequest(3.0, 70, 1, blocks=chain((), 2, 2)),
        SimRequest(4.0, 140, 1, blocks=talk),
    ]
    assert ideal_cached_tokens(requests, 32) == [0, 64, 96, 0, 128]
    assert pooled_cached_tokens(requests, 32, capacity_tokens=3 * 32) == [0, 64, 96, 0, 32]


@pytest.mark.skipif(not RECORDINGS, reason="STEELYARD_TRACES names no folder of recorded traces")
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traces(name: str) -> None:
    trace = available(Path(str(RECORDINGS)), 1)[name]()
    assert len(trace.requests) > 1_000
    if name.startswith("mooncake"):
        ideal = sum(ideal_cached_tokens(trace.requests, 512)) / sum(r.input_tokens for r in trace.requests)
        assert ideal == pytest.approx({"conversation": 0.36, "synthetic": 0.63}[name.partition("-")[2]], abs=0.03)
