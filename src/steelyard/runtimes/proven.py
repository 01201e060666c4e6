"""The fastest runtime of a classic model among those that say exactly what the model's own predict says.

Called by `select.py`. The model is loaded in its worker, which is the reference; native forms and the worker's faster
ways are compared with it on generated rows, measured, and the verdict is kept with the artifacts of the chosen one.
The next replica of the same model checks a few stored rows and starts at once. Whatever fails here but the model's own
loading ends in the reference serving, never in a runtime that was not proven.
"""

from __future__ import annotations

import contextlib
import platform
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import steelyard
from steelyard.contracts.worker import PRIMARY_VARIANT
from steelyard.errors import ModelLoadError, SteelyardError
from steelyard.observe.logs import get_logger
from steelyard.packages import Package
from steelyard.packages.environment import Environment, ensure
from steelyard.packages.satisfied import fingerprint_here
from steelyard.protocols.inputs import Inputs
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import InputSchema, MlflowCodec, parse_input_schema
from steelyard.runtimes.bare_files import BARE, packaged
from steelyard.runtimes.base import RowRuntime
from steelyard.runtimes.candidates import APART, BESIDE_A_WORKER, Candidate, Candidates, export, opened
from steelyard.runtimes.native import open_native
from steelyard.runtimes.native_model import NativeModel
from steelyard.runtimes.native_outcomes import outcomes_of
from steelyard.runtimes.proof.asking import Case
from steelyard.runtimes.proof.layout import Hints
from steelyard.runtimes.proof.measure import Cost, choose, effort_within, measure
from steelyard.runtimes.proof.outcome import Outcome, Predict
from steelyard.runtimes.proof.prove import Effort, Trial, Verdict
from steelyard.runtimes.proof.record import Record, Tried, check_probes, decode_record, encode_record, store_probes
from steelyard.runtimes.proof.row_wise import prove_row_wise
from steelyard.runtimes.select import Selection, Wishes
from steelyard.runtimes.verdicts import Verdicts, fingerprint
from steelyard.runtimes.work_clock import WorkClock
from steelyard.runtimes.worker_process import Launch
from steelyard.runtimes.workers import WorkerRuntime

_RECIPE = "4"  # counts up when the exporters, the native runtimes or the proof change what they do
_PROOF_S = 3.0  # about what the reference may be asked for
_MEASURE_S = 0.15  # for each runtime
_REFERENCE_S = 0.3  # what it takes decides how much it is asked
_SEED = 20261129
_RECORD_FILE = "record.json"
_ARTIFACTS = "artifacts"
_SMALL = Effort(rows=64, boundary_calls=0, boundary_rows=1)

log = get_logger()


def prove_and_choose(package: Package, wishes: Wishes) -> Selection:
    """Raises ModelLoadError when the model itself cannot be loaded."""
    verdicts = Verdicts(wishes.settings.runtimes_dir)
    marks = [_RECIPE, steelyard.__version__, fingerprint_here(), platform.machine(), _processor()]
    if package.kind in BARE:
        wishes.say("reading the model's file")
        package = packaged(package, verdicts, marks)
    schema = _schema(package)
    selecting = _Selecting(package, schema, wishes, verdicts)
    hindrance = _hindrance(package, schema)
    if hindrance is not None:
        return selecting.reference(f"chose {PRIMARY_VARIANT}: {hindrance}")
    key = fingerprint(package.path, marks)
    with verdicts.exclusive(key):
        return selecting.kept(key) or selecting.prove(key)


def _hindrance(package: Package, schema: InputSchema | None) -> str | None:
    """Why no other runtime can even be tried, if so."""
    if package.from_type_hints:
        return "the model's inputs are Python objects"
    if package.task is not None or package.streamable:
        return "the model converses"
    if schema is None:
        return "the model has no signature, so nothing else can be proven; log it with one"
    if package.signature_params is not None:
        return "the model takes params"
    return None


@dataclass(frozen=True, slots=True)
class _Contender:
    """A way of running the model; `native` is None for one of the worker's."""

    name: str
    predict: Predict
    native: RowRuntime | None = None


class _Selecting:
    """One selection for one package."""

    def __init__(self, package: Package, schema: InputSchema | None, wishes: Wishes, verdicts: Verdicts) -> None:
        self._package = package
        self._schema = schema
        self._wishes = wishes
        self._verdicts = verdicts
        self._codec = MlflowCodec(package.signature_inputs, package.signature_params, package.from_type_hints)

    def reference(self, reason: str) -> Selection:
        """The model's own predict serves."""
        return Selection(reason, worker=self._started(self._environment(), PRIMARY_VARIANT))

    def kept(self, key: str) -> Selection | None:
        """What an earlier selection chose, if that still holds."""
        folder = self._verdicts.find(key)
        if folder is None:
            return None
        try:
            record = decode_record((folder / _RECORD_FILE).read_bytes(), {})
        except OSError:
            record = None
        selection = self._reopened(folder, record) if record is not None else None
        if selection is None:
            self._verdicts.discard(key)
        return selection

    def _reopened(self, folder: Path, record: Record) -> Selection | None:
        reason = f"{record.sentence} (proven before)"
        artifact = folder / _ARTIFACTS / record.runtime
        if not artifact.is_dir():
            worker = self._started(self._environment(), record.runtime)
            self._share_calls(worker, record)
            return Selection(reason, worker=worker)
        self._wishes.say(f"opening the {record.runtime} runtime")
        try:
            runtime = open_native(artifact)
        except ModelLoadError as error:
            log.warning("kept_runtime_unusable", reason=error.message)
            return None
        verdict = check_probes(record, outcomes_of(runtime))
        if not verdict.equal:
            log.warning("kept_runtime_differs", runtime=record.runtime, reason=verdict.reason)
            runtime.close()
            return None
        return Selection(reason, native=self._native(runtime, record.cost))

    def prove(self, key: str) -> Selection:
        """Load the reference, which converts the model too, compare, choose, and keep the verdict."""
        environment = self._environment()
        with self._verdicts.draft() as draft:
            worker = self._started(environment, PRIMARY_VARIANT, exports=self._package.loader in BESIDE_A_WORKER)
            try:
                self._wishes.say("converting the model")
                candidates = self._candidates(worker, environment, draft / "exported")
                selection = self._choose(worker, candidates, draft, key)
            except Exception as error:
                log.error("proof_failed", trace=traceback.format_exc())
                reason = f"chose {PRIMARY_VARIANT}: the proof of others failed ({type(error).__name__}), see the log"
                return Selection(reason, worker=worker)
        if selection.native is not None:
            worker.close()
            environment.release()
        return selection

    def _candidates(self, worker: WorkerRuntime, environment: Environment, out: Path) -> Candidates:
        loader = self._package.loader
        if loader in BESIDE_A_WORKER and worker.exported(out):
            return opened(out)
        if loader in BESIDE_A_WORKER | APART:
            launch = Launch(environment.python, (), self._wishes.environment_vars, self._package.path)
            return export(launch, out)
        return Candidates((), {})

    def _choose(self, worker: WorkerRuntime, candidates: Candidates, draft: Path, key: str) -> Selection:
        self._wishes.say("comparing runtimes")

        def reference(inputs: Inputs) -> Outcome:
            return worker.outcome(inputs, PRIMARY_VARIANT)

        trial, rows, asked = self._trial(reference, candidates.hints, WorkClock(next(iter(worker.worker_pids), None)))
        tried = [_refused(item) for item in candidates.items if item.runtime is None]
        contenders = [
            _Contender(item.name, outcomes_of(item.runtime), item.runtime)
            for item in candidates.items
            if item.runtime is not None
        ]
        contenders += [_Contender(name, _variant(worker, name)) for name in worker.variants if name != PRIMARY_VARIANT]
        equal: list[tuple[str, Cost]] = []
        for contender in contenders:
            if contender.native is None and equal:
                break  # a process away, the worker's own ways cannot be faster
            verdict = trial.verdict(contender.predict)
            cost = None
            if verdict.equal and rows is not None:
                call = contender.native.predict if contender.native is not None else contender.predict
                cost = measure(call, rows, time.perf_counter_ns, budget_s=_MEASURE_S)
            tried.append(Tried(runtime=contender.name, verdict=verdict, cost=cost))
            if cost is not None:
                equal.append((contender.name, cost))
        if rows is not None:
            if not any(contender.native is not None and contender.name in dict(equal) for contender in contenders):
                asked = measure(reference, rows, time.perf_counter_ns, budget_s=_MEASURE_S)  # it may be a close race
            equal.append((PRIMARY_VARIANT, asked))
        if not equal:
            _close_all_but(None, contenders)
            why = trial.refusal or "the model answers none of the generated rows"
            return Selection(f"chose {PRIMARY_VARIANT}: {why.removeprefix('refused: ')}", worker=worker)
        choice = choose(equal)
        chosen = next((item for item in contenders if item.name == choice.name), None)
        # A native runtime treats each row on its own by its making; rounding at extremes must not count against it.
        serving = reference if chosen is None else chosen.predict
        row_wise = (chosen is not None and chosen.native is not None) or (
            rows is not None and prove_row_wise(serving, rows, _rng()).holds
        )
        record = Record(
            runtime=choice.name if chosen else PRIMARY_VARIANT,
            cost=choice.cost,
            row_wise=row_wise,
            reason=choice.reason,
            tried=tried,
            versions={},
            probes=store_probes(trial.probes()),
        )
        self._keep(record, draft, chosen, key)
        _close_all_but(chosen, contenders)
        if chosen is not None and chosen.native is not None:
            return Selection(record.sentence, native=self._native(chosen.native, choice.cost))
        worker.name = record.runtime
        self._share_calls(worker, record)
        return Selection(record.sentence, worker=worker)

    def _trial(self, reference: Predict, hints: Hints, work: WorkClock) -> tuple[Trial, Inputs | None, Cost]:
        """The reference's answers to generated rows, as many as its speed allows; rows that it answers; what it takes
        for them."""
        example = self._example()
        rows = example if example is not None and reference(example).error is None else None
        if rows is None:
            rows = _answered(Trial(reference, self._schema, example, hints, rng=_rng(), effort=_SMALL))
        cost = measure(reference, rows, work, budget_s=_REFERENCE_S) if rows is not None else Cost(1000.0, 100.0)
        trial = Trial(reference, self._schema, example, hints, rng=_rng(), effort=effort_within(cost, _PROOF_S))
        return trial, _answered(trial) or rows, cost

    def _example(self) -> Inputs | None:
        """The model's own input example as rows; None where it has none, or it does not fit its signature."""
        if self._package.example is None:
            return None
        try:
            return self._codec.decode(self._package.example, Media.JSON).inputs
        except SteelyardError:
            return None

    def _share_calls(self, worker: WorkerRuntime, record: Record) -> None:
        if record.row_wise and self._codec.batchable:
            worker.share_calls(record.cost)

    def _native(self, runtime: RowRuntime, cost: Cost) -> NativeModel:
        outputs = parse_input_schema(self._package.signature_outputs)
        return NativeModel(runtime, cost, self._codec, outputs)

    def _environment(self) -> Environment:
        self._wishes.say("finding the model's environment")
        self._wishes.building(True)
        try:
            return ensure(self._package, self._wishes.settings, self._told)
        finally:
            self._wishes.building(False)

    def _told(self, line: str) -> None:
        log.info("environment", line=line)
        self._wishes.say(f"building the model's environment: {line[:120]}")

    def _started(self, environment: Environment, variant: str, *, exports: bool = False) -> WorkerRuntime:
        self._wishes.say("loading the model")
        worker = WorkerRuntime(
            self._package,
            python=environment.python,
            variant=variant,
            max_concurrency=self._wishes.max_concurrency,
            environment=self._wishes.environment_vars,
            labels=self._wishes.labels,
            exports=exports,
        )
        worker.load()
        self._wishes.say("predicting the input example")
        try:
            worker.warm_up()
        except BaseException:
            worker.close()
            raise
        return worker

    def _keep(self, record: Record, draft: Path, chosen: _Contender | None, key: str) -> None:
        """Only the chosen runtime's artifacts; a full disk costs the next replica a proof, not this one its start."""
        final = draft / "final"
        try:
            final.mkdir()
            (final / _RECORD_FILE).write_bytes(encode_record(record))
            if chosen is not None and chosen.native is not None:
                (draft / "exported" / chosen.name).rename(_made(final / _ARTIFACTS) / chosen.name)
            self._verdicts.keep(final, key)
        except OSError as error:
            log.warning("verdict_not_kept", reason=error.strerror or type(error).__name__)


def _schema(package: Package) -> InputSchema | None:
    try:
        return parse_input_schema(package.signature_inputs)
    except ValueError as error:
        raise ModelLoadError(f"The model's signature cannot be read: {error}.") from error


def _variant(worker: WorkerRuntime, name: str) -> Predict:
    return lambda inputs: worker.outcome(inputs, name)


def _close_all_but(chosen: _Contender | None, contenders: Iterable[_Contender]) -> None:
    for contender in contenders:
        if contender.native is not None and contender is not chosen:
            contender.native.close()


def _refused(candidate: Candidate) -> Tried:
    refusal = candidate.refusal.rstrip(".")
    return Tried(runtime=candidate.name, verdict=Verdict(equal=False, rows=0, reason=f"refused: {refusal}"))


def _answered(trial: Trial) -> Inputs | None:
    """The largest call that the model answered."""
    cases: list[Case] = [case for case in trial.cases if case.expected.error is None]
    return max(cases, key=lambda case: case.inputs.rows).inputs if cases else None


def _rng() -> np.random.Generator:
    """The same rows for the same model on every machine."""
    return np.random.default_rng(_SEED)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _processor() -> str:
    """What decides how floats are computed: the processor's instruction sets."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return line
    return platform.processor()
