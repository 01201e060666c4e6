"""Real processes of a real platform are killed under load; each test says what a client may notice."""

import os
import signal

import httpx
import pytest

from support.ledger import at_rest
from support.load import Load
from support.processes import processes_of
from support.waiting import wait_until

SLOW = {"instances": [1]}
PATH = "/serving-endpoints/slow/invocations"


def replica_pids(platform) -> set[int]:
    return {process.pid for process in processes_of(platform.home, "steelyard.replica")}


@pytest.mark.parametrize("replicas", [2, 1])
def test_kill_of_a_replica_under_load_loses_no_request(own_platform, admin, slow_model, replicas):
    cores = len(os.sched_getaffinity(0))
    fixed = cores * replicas
    admin.deploy("slow", slow_model, min_provisioned_concurrency=fixed, max_provisioned_concurrency=fixed)
    admin.wait_ready("slow")
    before = wait_until(
        lambda: len(replica_pids(own_platform)) == replicas and replica_pids(own_platform), timeout_s=60
    )
    with Load(own_platform.url, own_platform.token, PATH, SLOW, clients=8) as load:
        wait_until(lambda: load.sent > 40, timeout_s=30)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(replica_pids(own_platform) - {victim}) == replicas, timeout_s=30)
        admin.wait_ready("slow")
        after = load.sent
        wait_until(lambda: load.sent > after + 40, timeout_s=60)
    assert set(load.outcomes) == {200}, load.outcomes
    wait_until(lambda: at_rest(own_platform), timeout_s=5)


def test_kill_of_control_leaves_traffic_untouched_and_its_successor_finds_everything(own_platform, admin, slow_model):
    admin.deploy("slow", slow_model)
    admin.wait_ready("slow")
    replicas = replica_pids(own_platform)
    (control,) = processes_of(own_platform.home, "steelyard.control")
    with Load(own_platform.url, own_platform.token, PATH, SLOW) as load:
        wait_until(lambda: load.sent > 20, timeout_s=30)
        control.kill()
        wait_until(
            lambda: [p for p in processes_of(own_platform.home, "steelyard.control") if p.pid != control.pid], 20
        )
        wait_until(lambda: admin_answers(admin), timeout_s=30)
        admin.wait_ready("slow")
        sent = load.sent
        wait_until(lambda: load.sent > sent + 20, timeout_s=30)
    assert set(load.outcomes) == {200}, load.outcomes
    assert replica_pids(own_platform) == replicas
    admin.deploy("second", slow_model)
    admin.wait_ready("second")


def admin_answers(admin) -> bool:
    return admin.http.get("/api/2.0/serving-endpoints").status_code == 200


def test_kill_of_the_router_is_mended_and_replicas_stay(own_platform, admin, slow_model):
    admin.deploy("slow", slow_model)
    admin.wait_ready("slow")
    replicas = replica_pids(own_platform)
    (router,) = processes_of(own_platform.home, "steelyard.router")
    router.kill()

    def answers() -> bool:
        try:
            headers = {"authorization": f"Bearer {own_platform.token}"}
            return httpx.post(own_platform.url + PATH, json=SLOW, headers=headers, timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    wait_until(answers, timeout_s=15)
    (successor,) = processes_of(own_platform.home, "steelyard.router")
    assert successor.pid != router.pid
    assert replica_pids(own_platform) == replicas


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_platform_leaves_no_process_behind(own_platform, admin, slow_model, how):
    admin.deploy("slow", slow_model)
    admin.wait_ready("slow")
    processes = processes_of(own_platform.home)
    for role in ("steelyard.control", "steelyard.router", "steelyard.replica"):
        assert any(role in process.command for process in processes), processes
    own_platform.process.send_signal(how)
    own_platform.process.wait(timeout=60)
    wait_until(lambda: not processes_of(own_platform.home), timeout_s=30)


def test_a_second_start_brings_everything_back_with_the_same_token(own_platform, admin, iris_model):
    admin.deploy("iris-own", iris_model.uri)
    admin.wait_ready("iris-own")
    token = own_platform.token
    own_platform.process.send_signal(signal.SIGKILL)
    own_platform.process.wait(timeout=10)
    own_platform.start(home=own_platform.home)
    assert own_platform.token == token
    headers = {"authorization": f"Bearer {token}"}

    def answer() -> list | None:
        reply = httpx.post(
            f"{own_platform.url}/serving-endpoints/iris-own/invocations",
            json={"dataframe_split": iris_model.split},
            headers=headers,
            timeout=60,
        )
        return reply.json()["predictions"] if reply.status_code == 200 else None

    assert wait_until(answer, timeout_s=60) == iris_model.predictions
