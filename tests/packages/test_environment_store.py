"""Who may build, use and remove an environment, with real locks on folders that only look like environments."""

import os
from pathlib import Path

import pytest

from steelyard.packages.environment_store import KEPT_ENVIRONMENTS, MARKER_FILE, Marker, Store, collect_garbage
from steelyard.settings import Settings

NOW_S = 2_000_000_000.0
DAY_S = 86_400.0


@pytest.fixture
def settings(tmp_path) -> Settings:
    settings = Settings(home=tmp_path)
    settings.environments_dir.mkdir()
    return settings


@pytest.fixture
def store(settings) -> Store:
    return Store(settings.environments_dir)


def key_of(number: int) -> str:
    return f"{number:024x}"


def add(store: Store, number: int, *, unused_s: float = 0.0, finished: bool = True) -> Path:
    key = key_of(number)
    (store.place(key) / "bin").mkdir(parents=True)
    (store.place(key) / "bin" / "python").touch()
    if finished:
        store.finish(Marker(key=key, python="3.11", requirements=[], build_s=1.0, fingerprint=""))
        store.touch(key, NOW_S - unused_s)
    return store.place(key)


def left(store: Store) -> set[int]:
    return {int(item.name, 16) for item in store.folder.iterdir() if item.is_dir()}


def test_the_least_recently_used_beyond_the_count_go(settings, store):
    for number in range(KEPT_ENVIRONMENTS + 3):
        add(store, number, unused_s=number * 60)
    removed = collect_garbage(settings, NOW_S)
    assert left(store) == set(range(KEPT_ENVIRONMENTS))
    assert len(removed) == 3
    assert all("10 others were used since" in line for line in removed)
    assert collect_garbage(settings, NOW_S) == ()


def test_what_nobody_used_for_30_days_goes(settings, store):
    add(store, 1, unused_s=29 * DAY_S)
    add(store, 2, unused_s=31 * DAY_S)
    assert collect_garbage(settings, NOW_S) == (f"removed the environment {key_of(2)}: unused for 31 days",)
    assert left(store) == {1}
    assert not (store.folder / f"{key_of(2)}.lock").exists()


def test_what_is_in_use_stays_and_counts_as_used_now(settings, store):
    add(store, 1, unused_s=90 * DAY_S)
    hold = store.share(key_of(1))
    assert collect_garbage(settings, NOW_S) == ()
    hold.release()
    assert collect_garbage(settings, NOW_S + 29 * DAY_S) == ()
    assert len(collect_garbage(settings, NOW_S + 31 * DAY_S)) == 1
    assert left(store) == set()


def test_an_abandoned_half_built_one_goes_and_one_that_is_being_built_stays(settings, store):
    add(store, 1, finished=False)
    add(store, 2, finished=False)
    builder = store.own(key_of(2))
    assert collect_garbage(settings, NOW_S) == (f"removed the environment {key_of(1)}: it was never finished",)
    assert left(store) == {2}
    builder.release()


def test_what_is_not_ours_is_left_alone(settings, store):
    (store.folder / "notes").mkdir()
    (store.folder / "notes.lock").touch()
    collect_garbage(settings, NOW_S)
    assert {item.name for item in store.folder.iterdir()} == {"notes", "notes.lock"}


def test_an_environment_that_lost_its_interpreter_counts_as_unfinished(settings, store):
    python = add(store, 1) / "bin" / "python"
    assert store.finished(key_of(1)) is not None
    python.unlink()
    python.symlink_to("/no/such/python")
    assert store.finished(key_of(1)) is None
    (store.place(key_of(1)) / MARKER_FILE).write_text("{")
    assert store.finished(key_of(1)) is None


def test_many_share_and_one_owns(store):
    first, second = store.share(key_of(1)), store.share(key_of(1))
    assert first is not None
    assert second is not None
    assert store.own(key_of(1)) is None
    first.release()
    second.release()
    second.release()
    owner = store.own(key_of(1))
    assert store.share(key_of(1)) is None
    owner.release()


def test_a_lock_whose_file_was_removed_is_not_taken_for_the_new_one(store):
    owner = store.own(key_of(1))
    store.forget(key_of(1))
    other = store.own(key_of(1))
    assert other is not None
    assert os.fstat(other.descriptor).st_ino != os.fstat(owner.descriptor).st_ino
    owner.release()
    assert store.own(key_of(1)) is None
    other.release()


def test_no_folder_yet_is_no_garbage(tmp_path):
    assert collect_garbage(Settings(home=tmp_path / "new"), NOW_S) == ()
