"""What a log says: progress, remaining time and failures by hand, hostile lines, and memory that stays bounded."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.command import app, run
from truenorth.models.scenario import InputError
from truenorth.planner.inputs.estimate.logs import (
    CAUSES,
    CUE,
    END,
    HINT,
    HINTS,
    MAX_LINE,
    LogReading,
    Remaining,
    Words,
    read_lines,
    read_log,
)

SECOND = 1_000_000


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    return Reader(tmp_path / "job.log")


class Reader:
    """Writes a log and reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, log: str | bytes, steps: float | None = None, epochs: float | None = None) -> LogReading:
        self.path.write_bytes(log.encode() if isinstance(log, str) else log)
        return read_log(self.path, steps, epochs)


def stamp(second: int) -> str:
    return f"2026-11-21 {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def bar(done: int, total: int, second: int, before: str = "", rate: str = "5.0it/s") -> str:
    clock = f"{second // 60:02d}:{second % 60:02d}"
    return f"\r{before}{100 * done // total:3d}%|████▌     | {done}/{total} [{clock}<01:00, {rate}]"


def counted(reading: LogReading) -> dict[str, tuple[float, float | None]]:
    return {count.unit: (count.done, count.total) for count in reading.counts}


STATED = [
    ("step 120/1000", {"step": (120, 1000)}),
    ("Step: 120 / 1000 | loss 0.3", {"step": (120, 1000)}),
    ("iter 100: loss 2.5, 12.3 samples/s", {"step": (100, None)}),
    ("iteration      100/    1000 | elapsed time per iteration (ms): 345.6", {"step": (100, 1000)}),
    ("step 1,200 of 10,000", {"step": (1200, 10000)}),
    ("global_step=7", {"step": (7, None)}),
    ("Epoch 3/10", {"epoch": (2, 10)}),  # the third has begun: two are finished
    ("Epoch 3/10 - loss: 0.51", {"epoch": (3, 10)}),  # its outcome is reported: three are
    ("Epoch [3/10], Step [100/500], Loss: 0.2", {"epoch": (2, 10), "step": (100, 500)}),
    ("Epoch: [3][450/1000]\tTime 0.3 (0.3)", {"epoch": (2, None), "step": (450, 1000)}),
    ("Train Epoch: 1 [1280/60000 (2%)]\tLoss: 2.3", {"epoch": (0, None), "step": (1280, 60000)}),
    ("{'loss': 0.52, 'learning_rate': 1e-05, 'epoch': 1.53}", {"epoch": (1.53, None)}),
    ("\x1b[32m 45%|\x1b[0m...| 450/1000 [01:30<01:50, 5.0it/s]", {"step": (450, 1000)}),
    (" 45%|####5     | 4.5k/10.0k [01:30<01:50, 50.0it/s]", {"step": (4500, 10000)}),
    ("450/1000 [=====>......] - ETA: 1:50 - loss: 0.3", {"step": (450, 1000)}),
    ("450/1000 ━━━━━━━━━━━━━━━━━━━━ 1:50 200ms/step", {"step": (450, 1000)}),
    ("Epoch:  30%|███       | 3/10 [01:30<03:30, 30.0s/epoch]", {"epoch": (3, 10)}),
    ("Epoch 2:  30%|███       | 30/100 [01:30<03:30, 3.0s/it, loss=2.6]", {"epoch": (1, None), "step": (30, 100)}),
    ("Downloading model:  30%|███       | 30/100 [01:30<03:30, 3.0s/it]", {}),
    ("weights:  30%|███       | 30/100 [01:30<03:30, 3.0MB/s]", {}),
    ("Evaluating:  30%|███       | 30/100 [01:30<03:30, 3.0s/it]", {}),
    ("Map:  30%|███       | 30/100 [01:30<03:30, 3.0 examples/s]", {}),
    ("eval step 30/100", {}),
    ("/home/test/train.py: step 30/100", {"step": (30, 100)}),
    ("warmup steps: 100, max_steps: 500", {}),
    ("gradient accumulation steps = 8", {}),
    ("saving every 500 steps", {}),
    ("batch size: 32", {}),
    ("step 1000/120", {}),
    ("lr 0.1, step_time 3", {}),
    ("date 2026/11/21, ratio 3/10", {}),
    ("", {}),
]


@pytest.mark.parametrize(("line", "expected"), STATED)
def test_a_line_states_counts(read: Reader, line: str, expected: dict[str, tuple[float, float | None]]) -> None:
    reading = read(f"start\n{line}\n")
    assert counted(reading) == expected
    assert {count.line for count in reading.counts} <= {2}
    assert reading.failure is None


RATES = [
    ("12.3 samples/s", {"sample": 12.3}),
    ("throughput: 1500 tokens/sec", {"token": 1500.0}),
    ("{'train_samples_per_second': 12.3, 'epoch': 3.0}", {"sample": 12.3}),
    ("step 3 took 0.5 s/it", {"step": 2.0}),
    ("200ms/step", {"step": 5.0}),
    ("iteration 3/9 | elapsed time per iteration (ms): 250.0", {"step": 4.0}),
    (" 45%|...| 450/1000 [01:30<01:50, 2.00s/it]", {"step": 0.5}),
    (" 45%|...| 450/1000 [01:30<?, ?it/s]", {}),
    ("read at 300 MB/s", {}),
    ("0.0 samples/s", {}),
]


@pytest.mark.parametrize(("line", "expected"), RATES)
def test_a_line_states_a_rate(read: Reader, line: str, expected: dict[str, float]) -> None:
    assert {rate.unit: rate.per_second for rate in read(line).rates} == expected


def test_a_stated_rate_is_the_median_of_the_recent_ones(read: Reader) -> None:
    log = "".join(f"{rate} samples/s\n" for rate in (10, 12, 900, 11, 0.1))
    assert [rate.per_second for rate in read(log).rates] == [11]


def test_remaining_time_of_a_steady_bar(read: Reader) -> None:
    # 10 steps in every 2 s, the last at 440 of 1000: (1000 - 440) x 0.2 s = 112 s.
    reading = read("".join(bar(done, 1000, done // 5) for done in range(0, 450, 10)))
    assert reading.remaining == Remaining(112 * SECOND, 112 * SECOND, 112 * SECOND)
    assert reading.fraction == 0.44
    assert [(rate.unit, rate.per_second) for rate in reading.rates] == [("step", 5.0)]
    assert reading.lines == 1


def test_the_interval_is_the_spread_of_the_recent_window(read: Reader) -> None:
    # Ten advances of 10 steps: five take 10 s, five 20 s, so half the blocks run at 1 s a step, half at 2 s.
    # Quantiles of [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]: 10 % 1, 50 % 1.5, 90 % 2. Left are 100 steps of 200.
    second, log = 0, f"{stamp(0)} step 0/200\n"
    for at in range(1, 11):
        second += 20 if at % 2 else 10
        log += f"{stamp(second)} step {at * 10}/200\n"
    assert read(log).remaining == Remaining(100 * SECOND, 150 * SECOND, 200 * SECOND)


def test_one_stall_does_not_move_the_expectation(read: Reader) -> None:
    # A step a second, and an hour's stall after step 50: 9 of the 10 blocks go at 1 s a step; 100 are left of 200.
    log = "".join(f"{stamp(step + (3600 if step > 50 else 0))} step {step}/200\n" for step in range(101))
    remaining = read(log).remaining
    assert remaining is not None
    assert remaining.expected_us == 100 * SECOND
    assert remaining.low_us == 100 * SECOND


def test_the_window_forgets_how_slow_the_job_began(read: Reader) -> None:
    # 1000 steps at 10 s, then 500 at 1 s: the window of 400 advances holds only the latter.
    seconds = [10 * step for step in range(1001)] + [10_000 + step for step in range(1, 501)]
    log = "".join(f"{stamp(second)} step {step}/1600\n" for step, second in enumerate(seconds))
    assert read(log).remaining == Remaining(100 * SECOND, 100 * SECOND, 100 * SECOND)


TEN_SECONDS_EACH = [
    # Clocks are put forward from 02:00 to 03:00 in the night to the last Sunday in March, and back in October.
    ("2026-03-29 01:59:40", "2026-03-29 01:59:50", "2026-03-29 03:00:00"),
    ("2026-03-29 01:59:55", "2026-03-29 03:00:05"),
    ("2026-10-25 02:59:40", "2026-10-25 02:59:50", "2026-10-25 02:00:00", "2026-10-25 02:00:10"),
    ("2026-03-29T01:59:55+01:00", "2026-03-29T03:00:05+02:00"),
    ("2026-03-29T00:59:55Z", "2026-03-29T03:00:05+0200"),
    # Times without dates go on behind midnight.
    ("14:00:00", "14:00:10", "14:00:20"),
    ("[23:59:40]", "[23:59:50]", "[00:00:00]", "[00:00:10]"),
    ("INFO 23:59:55,500", "INFO 00:00:05,500"),
]


@pytest.mark.parametrize("stamps", TEN_SECONDS_EACH)
def test_clocks_that_change_and_midnights_are_no_progress(read: Reader, stamps: tuple[str, ...]) -> None:
    log = "".join(f"{at} step {step}/100\n" for step, at in enumerate(stamps, 1))
    left = 100 - len(stamps)
    assert read(log).remaining == Remaining(None, left * 10 * SECOND, None)


def test_an_hour_on_another_day_is_an_hour(read: Reader) -> None:
    # The same hour a day later, and one at noon, passed.
    for day, hour in ((30, 1), (29, 12)):
        log = f"2026-03-{day} {hour:02d}:59:55 step 1/3\n2026-03-{day} {hour + 2:02d}:00:05 step 2/3\n"
        assert read(log).remaining == Remaining(None, 3_610 * SECOND, None)


def test_the_first_stamp_says_what_sort_counts(read: Reader) -> None:
    # An elapsed time in front, dated stamps in between: the log's own are the times of day.
    log = "10:00:00 step 1/4\n2026-01-01 00:00:00 step 2/4\n10:00:20 step 3/4\n"
    assert read(log).remaining == Remaining(None, 10 * SECOND, None)


@pytest.mark.parametrize("seed", range(3))
def test_lines_that_differ_in_digits_alone_hold_the_same_words(seed: int) -> None:
    words = Words()
    lines = ["step 3 of 7", "step 9 of 12", "rank 3 failed", "rank 4 failed", "training completed 1", "nothing 12", "0"]
    rotated = [lines[(place + seed) % len(lines)] for place in range(len(lines))] * 2
    assert {line: words.held_by(line) for line in rotated} == {
        "step 3 of 7": CUE,
        "step 9 of 12": CUE,
        "rank 3 failed": HINT,
        "rank 4 failed": HINT,
        "training completed 1": END,
        "nothing 12": 0,
        "0": 0,
    }


UNKNOWN = [
    "step 120/1000\n",  # no clock
    "{'loss': 0.5, 'epoch': 1.5}\n",  # no total
    f"{stamp(0)} step 1\n{stamp(1)} step 2\n",  # no total
    f"{stamp(5)} step 5/9\n",  # no second look
    f"{stamp(5)} step 5/9\n{stamp(5)} step 6/9\n",  # no time between them
    f"{stamp(9)} step 5/9\n{stamp(5)} step 6/9\n",  # the clock went back
    f"Epoch 1/10\n{stamp(0)} step 1/100\n{stamp(1)} step 2/100\n",  # 100 in this epoch, or in all?
    "Epoch: [0][1/100] 5.0 it/s\nEpoch: [0][2/100]\n",  # of how many epochs?
    "2026-13-45 99:99:99 step 1/9\n",
    "nothing\n",
    "",
]


@pytest.mark.parametrize("log", UNKNOWN)
def test_what_cannot_be_known_is_none(read: Reader, log: str) -> None:
    assert read(log).remaining is None


def test_a_rate_or_a_guess_in_the_log_gives_an_expectation_without_an_interval(read: Reader) -> None:
    # 550 steps at 5 a second.
    assert read("45%|...| 450/1000 [01:30<01:50, 5.0it/s]").remaining == Remaining(None, 110 * SECOND, None)
    assert read("45%|...| 450/1000 [01:30<01:50]").remaining == Remaining(None, 110 * SECOND, None)
    assert read("step 5/9 eta: 0:12:34").remaining == Remaining(None, 754 * SECOND, None)
    # Three advances are too few to say how much they vary.
    log = "".join(f"{stamp(2 * step)} step {step}/10\n" for step in range(4))
    assert read(log).remaining == Remaining(None, 14 * SECOND, None)


def test_totals_may_come_from_outside(read: Reader) -> None:
    log = "".join(f"{stamp(2 * step)} step {step}\n" for step in range(1, 21))
    assert read(log).remaining is None
    reading = read(log, steps=50)
    assert reading.remaining == Remaining(60 * SECOND, 60 * SECOND, 60 * SECOND)
    assert reading.fraction == 0.4


def test_steps_that_start_anew_in_every_epoch_count_through_all(read: Reader) -> None:
    # Two epochs of 5 one-minute steps are over and 3 steps of the third of 10: 13 of 50, 37 minutes.
    lines = []
    for epoch, last in ((1, 5), (2, 5), (3, 3)):
        lines.append(f"Epoch {epoch}/10")
        lines += [f"{stamp(600 * epoch + 60 * step)} step {step}/5" for step in range(1, last + 1)]
    reading = read("\n".join(lines))
    assert reading.fraction == 13 / 50
    assert reading.remaining is not None
    assert reading.remaining.expected_us == 37 * 60 * SECOND


def test_between_epochs_only_finished_ones_count(read: Reader) -> None:
    log = "Epoch 1/4\nstep 5/5\nEpoch 2/4\nstep 5/5\nEpoch 3/4\n"
    assert read(log).fraction == 0.5
    assert read(log + "step 0/5\n").fraction == 0.5


def test_steps_that_go_on_through_epochs_count_once(read: Reader) -> None:
    log = "Epoch 1/4\nstep 5/20\nEpoch 2/4\nstep 6/20\n"
    assert read(log).fraction == 0.3


def test_epochs_counted_from_zero(read: Reader) -> None:
    # Epochs 0 and 1 are over, 2 runs.
    assert read("".join(f"Epoch {epoch}/9\n" for epoch in range(3))).counts[0].done == 2
    assert read("".join(f"Epoch {epoch}: loss 0.5\n" for epoch in range(3))).counts[0].done == 3


def test_hours_of_epochs(read: Reader) -> None:
    # Eight of ten, an hour each.
    log = "".join(f"{stamp(3600 * epoch)} Epoch {epoch}/10 - loss: 0.3\n" for epoch in range(1, 9))
    reading = read(log)
    assert reading.fraction == 0.8
    assert reading.remaining == Remaining(7200 * SECOND, 7200 * SECOND, 7200 * SECOND)


TRAINER = "***** Running training *****\n  Num Epochs = 3\n  Total optimization steps = 375\n" + "".join(
    bar(done, 375, done // 10, rate="10.0it/s") + f"\n{{'loss': 0.5, 'epoch': {done / 125}}}\n"
    for done in range(10, 200, 10)
)


def test_the_bar_of_the_hugging_face_trainer_counts_all_epochs(read: Reader) -> None:
    reading = read(TRAINER)
    assert counted(reading) == {"step": (190, 375), "epoch": (1.52, 3)}
    # 185 steps at 0.1 s.
    assert reading.remaining is not None
    assert reading.remaining.expected_us == 18_500_000
    assert not reading.finished


def test_bars_of_evaluations_inside_are_not_the_job(read: Reader) -> None:
    log = ""
    for done in range(0, 450, 10):
        log += bar(done, 1000, done // 5)
        if done % 100 == 0:
            log += "".join(bar(at, 50, at // 25) for at in range(0, 51, 10)) + "\n"
    assert counted(read(log))["step"] == (440, 1000)


def test_the_end(read: Reader) -> None:
    assert read("step 9/9\n").state == "finished"
    ended = read(TRAINER + "{'train_runtime': 19.2, 'train_samples_per_second': 78.1}\n")
    assert (ended.state, ended.remaining) == ("finished", Remaining(0, 0, 0))
    assert read("step 8/9\n").state == "unfinished"
    failed = read("step 9/9\nTraceback (most recent call last):\nValueError: cannot save\n")
    assert (failed.state, failed.finished, failed.remaining) == ("failed", False, None)


FAILURES = [
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out of memory", False),
    ("RuntimeError: CUDA error: out of memory", "out of memory", False),
    ("torch.OutOfMemoryError: HIP out of memory. Tried", "out of memory", False),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`", "out of memory", False),
    ("jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 3 bytes", "out of memory", False),
    ("ResourceExhaustedError: OOM when allocating tensor", "out of memory", False),
    ("ncclUnhandledCudaError: Last error: Cuda failure 2 'out of memory'", "out of memory", False),
    ("ValueError: No available memory for the cache blocks. Try increasing", "out of memory", False),
    ("[123.4] Out of memory: Killed process 4242 (python)", "out of memory", False),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0", "out of memory", False),
    ("slurmstepd: error: Detected 2 oom-kill event(s) in step 3.batch cgroup.", "out of memory", False),
    ("srun: error: node1: task 0: Out Of Memory", "out of memory", False),
    ("reason: OOMKilled", "out of memory", False),
    ("MemoryError", "out of memory", False),
    ("OSError: [Errno 12] Cannot allocate memory", "out of memory", False),
    ("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried", "out of memory", False),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "out of memory", False),
    ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", "out of memory", False),
    ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible", "out of memory", False),
    ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO PREEMPTION ***", "killed", True),
    ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***", "killed", False),
    ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-21T10:00:00 ***", "killed", False),
    ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO NODE FAILURE ***", "killed", True),
    ("The spot instance interruption notice was received", "killed", True),
    ("KeyboardInterrupt", "killed", False),
    ("Killed", "killed", True),
    ("run.sh: line 3:  4242 Killed                  python train.py", "killed", True),
    ("Terminated", "killed", True),
    ("Received SIGTERM: 15, closing", "killed", True),
    ("traceback : Signal 15 (SIGTERM) received by PID 42", "killed", True),
    ("  exitcode  : -9 (pid: 42)", "killed", True),
    ("command terminated with exit code 137", "killed", True),
    ("torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL", "killed", True),
    ("[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(...)", "nccl", True),
    ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled", "nccl", True),
    ("ncclSystemError: System call (e.g. socket, malloc) or external library call failed", "nccl", True),
    ("RuntimeError: Timed out initializing process group in store based barrier on rank: 0", "nccl", True),
    ("RuntimeError: [/x/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:4242", "nccl", True),
    ("NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.", "cuda", True),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "cuda", True),
    ("RuntimeError: CUDA error: unspecified launch failure", "cuda", True),
    ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "cuda", True),
    ("RuntimeError: CUDA error: device-side assert triggered", "cuda", False),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda", False),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "cuda", False),
    ("RuntimeError: Found no NVIDIA driver on your system.", "cuda", False),
    ("AssertionError: Torch not compiled with CUDA enabled", "cuda", False),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "cuda", False),
    ("RuntimeError: CUDA error: invalid device ordinal", "cuda", False),
    ("OSError: [Errno 28] No space left on device", "data", False),
    ("OSError: [Errno 5] Input/output error: '/data/x'", "data", True),
    ("OSError: [Errno 116] Stale file handle", "data", True),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", "data", False),
    ("datasets.exceptions.DatasetNotFoundError: Dataset 'x' doesn't exist", "data", False),
    ("PIL.UnidentifiedImageError: cannot identify image file", "data", False),
    ("OSError: image file is truncated (3 bytes not processed)", "data", False),
    ("zipfile.BadZipFile: File is not a zip file", "data", False),
    ("pyarrow.lib.ArrowInvalid: Could not open Parquet input source", "data", False),
    ("requests.exceptions.ConnectionError: HTTPSConnectionPool", "data", True),
    ("ModuleNotFoundError: No module named 'torch'", "user error", False),
    ("ImportError: cannot import name 'x'", "user error", False),
    ("SyntaxError: invalid syntax", "user error", False),
    ("train.py: error: unrecognized arguments: --foo", "user error", False),
    ("python: can't open file '/x/train.py'", "user error", False),
    ("bash: torchrun: command not found", "user error", False),
    ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "unknown", False),
    ("subprocess.CalledProcessError: Command '['x']' returned non-zero exit status 1.", "unknown", False),
    ("Segmentation fault (core dumped)", "unknown", False),
    ("srun: error: n1: task 0: Exited with exit code 1", "unknown", False),
]  # fmt: skip


@pytest.mark.parametrize(("line", "failure", "retry"), FAILURES)
def test_classes_of_failure(read: Reader, line: str, failure: str, retry: bool) -> None:
    found = read(f"step 1/9\n[rank3]: some text\n{line}\n").failure
    assert found is not None
    assert (found.failure, found.retry, found.lines) == (failure, retry, (3,))
    assert found.reason.count(" ".join(line.split())[:60]) == 1
    assert "\n" not in found.reason
    assert read(f"step 1/9\n\x1b[31m{line}\x1b[0m\n").failure is not None


def test_every_row_of_the_table_is_tested_and_passes_the_first_look() -> None:
    for cause in CAUSES:
        matching = [line for line, failure, _ in FAILURES if cause.pattern.search(line) and failure == cause.failure]
        assert matching, cause.reason
        assert all(any(word in line.lower() for word in cause.words) for line in matching)
        assert all(any(hint in word for hint in HINTS) for word in cause.words)


HARMLESS = [
    "validation error: 0.12", "exit code 0", "mean squared error 3.2", "NCCL INFO Connected all rings",
    "NCCL version 2.19.3+cuda12.1", "memory allocated: 3 GB", "FutureWarning: errors will be raised", "no errors",
    "killed 0 zombies", "CUDA available: True", "ValueError: printed by nobody's traceback", "assert passed",
    "Sending process 7 closing signal SIGTERM",
]  # fmt: skip


@pytest.mark.parametrize("line", HARMLESS)
def test_lines_that_only_sound_like_failures(read: Reader, line: str) -> None:
    assert read(f"step 1/9\n{line}\n").failure is None


TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'
OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
NCCL = "[rank0]:[E ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL"
TERM = "  exitcode  : -15 (pid: 42)"
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
ROOTS = [
    # One rank runs out of memory; the others wait for it until NCCL gives up, and the launcher ends them.
    ([NCCL, OOM, TERM, CHILD], "out of memory", (2,)),
    ([OOM, NCCL, TERM, CHILD], "out of memory", (1,)),
    # A bug in one rank.
    ([NCCL, TRACEBACK + "KeyError: 'label'", TERM, CHILD], "user error", (5,)),
    (["[rank2]: " + TRACEBACK + "[rank2]: KeyError: 'label'", NCCL], "user error", (4,)),
    # The first exception of a chain is the cause, the second its handling.
    ([TRACEBACK + "FileNotFoundError: x", "During handling of the above", TRACEBACK + "TypeError: y"], "data", (4,)),
    ([TRACEBACK + "TypeError: y", TRACEBACK + "FileNotFoundError: x"], "user error", (4,)),
    # Preemption: signals and broken connections follow.
    (["slurmstepd: error: *** STEP 1.0 ON n CANCELLED AT 2026-11-21T10:00:00 ***",
      "slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2026-11-21T10:00:46 DUE TO PREEMPTION ***",
      TRACEBACK + "RuntimeError: Timed out initializing process", TRACEBACK + "ValueError: late"], "killed", (2,)),
    (["Received SIGTERM", NCCL], "killed", (1,)),
    ([NCCL, TERM], "nccl", (1,)),
    ([NCCL, NCCL, NCCL], "nccl", (1, 2, 3)),
    # The host's out-of-memory killer, seen by the shell first.
    (["Killed", "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0"], "out of memory", (2,)),
    ([TRACEBACK + "spawn.ProcessRaisedException: ", TRACEBACK + "AssertionError"], "user error", (8,)),
    ([TRACEBACK + "BrokenPipeError: [Errno 32] Broken pipe"], "unknown", (4,)),
]  # fmt: skip


@pytest.mark.parametrize(("log", "failure", "lines"), ROOTS)
def test_the_root_cause_comes_first(read: Reader, log: list[str], failure: str, lines: tuple[int, ...]) -> None:
    found = read("\n".join(log)).failure
    assert found is not None
    assert (str(found.failure), found.lines) == (failure, lines)


def test_an_error_that_the_job_survives_is_forgotten(read: Reader) -> None:
    # A batch size that did not fit is halved, and training goes on.
    steps = [f"step {step}/9" for step in range(9)]
    assert read("\n".join([*steps[:3], OOM, *steps[3:]])).failure is None
    # Other ranks may report a step or two after the error.
    found = read("\n".join([*steps[:3], OOM, *steps[3:5]])).failure
    assert found is not None
    assert found.lines == (4,)
    # The same error later is a new one.
    again = read("\n".join([*steps[:3], OOM, *steps[3:7], OOM])).failure
    assert again is not None
    assert again.lines == (9,)


def test_evidence_is_bounded(read: Reader) -> None:
    found = read((NCCL + "x" * 500 + "\n") * 100).failure
    assert found is not None
    assert found.lines == (1, 2, 3, 4, 5)
    assert len(found.reason) < 250


N = 100_000
HOSTILE = [
    "1" * N, " " * N, "step " * N, "epoch " * N, "epoch [" * N, "45%|" * N, "45%|" + "x" * N, "1/1 [" + "=" * N,
    "\x1b[" + "1;" * N, "\x1b[" * N, "\x1b]" * N, "A" * N + "Error", "a." * N + "Error", "error " + "a." * N,
    "1.1 " * N + "it/s step", "step 1/" * N, "step " + "1,111" * N, "eta: " + "1 day, " * N,
    "x" * N + ": line 1: 1 Killed", "x" * N + ": error: argument", "error [" + "rank0]: [" * N,
    "DataLoader worker " * N, "loss" * N + "epoch 3",
    "*** JOB " * N, "\0" * N, "\u2028" * N, "epoch 1." * N, "9" * 5_000 + "/" + "9" * 5_000,
    "step 1e400/1e400 1e400it/s",
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_lines_are_read_in_bounded_time(read: Reader, line: str) -> None:
    # Patterns see at most MAX_LINE characters and repeat a bounded number of times: this file ends in
    # seconds even if every one of them were tried everywhere, and would take hours if one could backtrack.
    reading = read(f"Traceback (most recent call last):\n{line}\nstep 3/9\n")
    assert counted(reading)["step"] == (3, 9) or reading.counts
    assert read_log_dictionary(reading)


def read_log_dictionary(reading: LogReading) -> bool:
    return json.loads(json.dumps(reading.as_dict()))["state"] in ("failed", "finished", "unfinished")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([row[0].encode() for table in (STATED, RATES, FAILURES) for row in table]),
            st.sampled_from([b"\r", b"\n", TRACEBACK.encode(), bar(3, 9, 5).encode()]),
        ),
        max_size=20,
    )
)
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("any") / "job.log"
    path.write_bytes(b"\n".join(parts))
    if path.read_bytes().startswith(b"\x1f\x8b"):  # what begins as gzip and is none is refused in one line
        with pytest.raises(InputError, match=r"job.log:1: file: is damaged: .*; allowed is a whole gzip file"):
            read_log(path)
        return
    reading = read_log(path)
    assert read_log_dictionary(reading)
    assert reading.fraction is None or 0 <= reading.fraction <= 1
    left = reading.remaining
    if left is not None and left.low_us is not None and left.high_us is not None:
        assert 0 <= left.low_us <= left.expected_us <= left.high_us


def lines_of(data: bytes) -> list[tuple[int, str]]:
    return list(read_lines(io.BytesIO(data), "job.log"))


def test_lines_are_counted_by_line_feeds() -> None:
    assert lines_of(b"a\r\nb\rc\n\n\xffd\re") == [(1, "a"), (2, "b"), (2, "c"), (4, "\ufffdd"), (4, "e")]
    assert lines_of(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x08\n") == [(1, "red x")]
    assert lines_of(b"") == []
    assert lines_of(b"x" * (3 << 20) + b"\ny")[0] == (1, "x" * MAX_LINE)
    assert lines_of(b"x" * (3 << 20) + b"\ny")[1] == (2, "y")


def test_memory_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "big.log"
    path.write_bytes((b"x" * 8_000 + b"\r") * 1_000 + b"y" * 4_000_000 + b"\n" + OOM.encode())
    tracemalloc.start()
    reading = read_log(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reading.failure is not None
    assert reading.failure.lines == (2,)
    assert peak < 6_000_000  # of 12 MB: a chunk of 1 MiB as read, with the rest before it, and in pieces


def test_a_log_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.log:1: file: cannot be read: No such file or directory; allowed is"):
        read_log(tmp_path / "gone.log")
    with pytest.raises(InputError, match="Is a directory"):
        read_log(tmp_path)


def test_a_packed_log_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(f"{stamp(2 * step)} step {step}/50\n" for step in range(1, 21)).encode()
    path, packed = tmp_path / "job.log", tmp_path / "job.log.gz"
    path.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    read: list[int] = []
    assert read_log(packed, watch=read.append) == read_log(path)
    assert read[-1] == packed.stat().st_size  # the file's own bytes, as the line of progress counts them
    packed.write_bytes(gzip.compress(text)[:-9])
    assert run(app, ["progress", str(packed)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"truenorth: error: {packed}:1: file: is damaged: ")
    assert error.count("\n") == 1


def test_a_log_may_come_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=["step 3/4\n"])
    writer.start()
    read: list[int] = []
    assert counted(read_log(pipe, watch=read.append)) == {"step": (3, 4)}
    writer.join()
    assert read == [len("step 3/4\n")]


@pytest.mark.parametrize("total", ["inf", "nan", "-inf", "0", "-5", "many"])
@pytest.mark.parametrize("option", ["--steps", "--epochs"])
def test_a_total_is_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, total: str) -> None:
    path = tmp_path / "job.log"
    path.write_text("step 3\n")
    assert run(app, ["progress", str(path), option, total]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("truenorth: error: ")
    assert option in output.err
    assert output.err.count("\n") == 1


@pytest.mark.parametrize(
    ("log", "options", "said"),
    [
        ("step 20/50", ["--steps", "20"], "--steps 20 is ignored: the log states 50 steps\n"),
        ("max_steps: 50\nstep 20", ["--steps", "30"], "--steps 30 is ignored: the log states 50 steps\n"),
        ("Epoch 3/10", ["--epochs", "4"], "--epochs 4 is ignored: the log states 10 epochs\n"),
        ("step 20/50", ["--epochs", "4"], "--epochs 4 is ignored: the log counts no epochs\n"),
        ("step 20/50", ["--steps", "50"], ""),
        ("step 20", ["--steps", "50"], ""),
    ],
)
def test_a_total_that_is_ignored_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: str, options: list[str], said: str
) -> None:
    path = tmp_path / "job.log"
    path.write_text(log)
    assert run(app, ["progress", str(path), *options]) == 0
    assert capsys.readouterr().err == said


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(f"{stamp(2 * step)} step {step}/50\n" for step in range(1, 21)))
    assert run(app, ["progress", str(path), "--json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert json.loads(output.out) == {
        "state": "unfinished",
        "lines": 20,
        "counts": [{"unit": "step", "done": 20.0, "total": 50.0, "line": 20}],
        "fraction": 0.4,
        "remaining": {"low_s": 60.0, "expected_s": 60.0, "high_s": 60.0},
        "rates": {"step": 0.5},
        "failure": None,
    }
    assert run(app, ["progress", str(path), "--steps", "20"]) == 0
    assert "20 of 50 steps" in capsys.readouterr().out


def test_the_verb_says_when_a_log_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    path.write_text("hello\n")
    assert run(app, ["progress", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"] == []
    assert run(app, ["progress", str(tmp_path / "gone")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("truenorth: error: ")
    assert error.count("\n") == 1
