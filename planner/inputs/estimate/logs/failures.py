"""What lines say about failures: a table from patterns to classes, root causes before their consequences.

A failure of one rank makes the others fail as well, in other words. So patterns have a weight, and the heaviest
decides; among equals the first line, since what follows it is mostly its consequence:

1. the definite: out of memory, on a GPU or on the host, and what a cluster manager says that it did to the job;
2. errors of CUDA and of the data, and Python exceptions of the job's own code;
3. symptoms that something else often causes: NCCL errors and time-outs, signals;
4. consequences: what a launcher says about processes that have failed, and errors of no known kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

MOST_LINES = 5
"""Lines of evidence that a failure names."""
WENT_ON = 3
"""A job that gets further so often after an error has survived it; other ranks may still report a step or two."""
_TRACEBACK_LINES = 300
_LONGEST_QUOTE = 160
_EXCEPTION = re.compile(
    r"^(?:\[[\w:., -]{1,40}\]:?\s?|\d{1,4}: ?){0,2}(?:[A-Za-z_]\w{0,60}\.){0,8}"
    r"([A-Z]\w{0,60}(?:Error|Exception|Exit|Exhausted|NotFound|StopIteration|LogFailure))(?::|$)"
)
_CONSEQUENCES = frozenset(
    (
        "OSError", "TimeoutError", "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError", "EOFError",
        "ConnectionRefusedError", "SystemExit", "ProcessRaisedException", "ProcessExitedException", "CancelledError",
    )
)  # fmt: skip
_PATTERN = re.compile("")


class FailureClass(StrEnum):
    """What made a job fail."""

    OUT_OF_MEMORY = "out of memory"
    NCCL = "nccl"
    CUDA = "cuda"
    DATA = "data"
    KILLED = "killed"
    USER_ERROR = "user error"
    UNKNOWN = "unknown"


class Weight(IntEnum):
    """How close to the root a pattern is; lower ones decide."""

    DEFINITE = 1
    ERROR = 2
    SYMPTOM = 3
    CONSEQUENCE = 4


@dataclass(frozen=True, slots=True)
class Cause:
    """A pattern and what it means.

    Parameters
    ----------
    pattern
        Bounded, so that no line takes long.
    words
        In lower case; what matches holds one of them, and other lines are not matched at all.
    retry
        Whether the same job may succeed if it is started again, unchanged.
    reason
        What happened, in a few words.
    """

    pattern: re.Pattern[str]
    words: tuple[str, ...]
    failure: FailureClass
    weight: Weight
    retry: bool
    reason: str


def _causes(failure: FailureClass, weight: Weight, *rows: tuple[str, bool, str, str]) -> tuple[Cause, ...]:
    return tuple(
        Cause(re.compile(pattern), tuple(words.split("|")), failure, weight, retry, reason)
        for pattern, retry, reason, words in rows
    )


CAUSES = (
    *_causes(
        FailureClass.OUT_OF_MEMORY,
        Weight.DEFINITE,
        (
            r"(?i)(?:CUDA|HIP) (?:error: )?out of memory|Cuda failure (?:\d{1,4} )?'out of memory'"
            r"|torch\.(?:cuda\.)?OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY"
            r"|cudaMalloc failed: out of memory|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: |OOM when allocating"
            r"|No available memory for the cache blocks",
            False,
            "a GPU ran out of memory",
            "out of memory|outofmemory|out_of_memory|alloc_failed|resource_exhausted|oom when|cache blocks",
        ),
        (
            r"(?i)oom[-_]kill|out of memory: kill|OOMKilled|exceeded (?:job |step )?memory limit|\bMemoryError\b"
            r"|can't allocate memory|cannot allocate memory|std::bad_alloc|task \d{1,6}: out of memory"
            r"|is killed by signal: Killed",
            False,
            "the host ran out of memory",
            "oom-kill|oom_kill|oomkill|memory|bad_alloc|signal: killed",
        ),
        (
            r"(?i)is killed by signal: Bus error|out of shared memory \(shm\)|insufficient shared memory",
            False,
            "the host ran out of shared memory",
            "bus error|shared memory",
        ),
    ),
    *_causes(
        FailureClass.KILLED,
        Weight.DEFINITE,
        (
            r"(?i)due to preemption|\bpreempted\b|spot (?:instance )?(?:interruption|termination)",
            True,
            "the job was preempted",
            "preempt|spot ",
        ),
        (
            r"(?i)due to time limit|walltime exceeded|exceeded (?:the )?time limit",
            False,
            "its time limit ended the job",
            "time limit|walltime",
        ),
        (r"(?i)due to node fail|node failure", True, "a node failed", "node fail"),
        (r"^\s{0,4}(?:\[[\w:]{1,20}\]:?\s?)?KeyboardInterrupt\b", False, "somebody interrupted the job", "interrupt"),
    ),
    *_causes(
        FailureClass.NCCL,
        Weight.SYMPTOM,
        (
            r"(?i)Watchdog caught collective operation timeout|collective operation timeout|Timeout at NCCL work"
            r"|Timed out initializing process group|watchdog got stuck|heartbeat monitor timed out",
            True,
            "a collective operation timed out: a rank was lost or late",
            "timeout|timed out|stuck",
        ),
        (
            r"ncclUnhandledCudaError|ncclInternalError|ncclSystemError|ncclRemoteError|ncclInvalidUsage|(?i:NCCL error)"
            r"|NCCL communicator was aborted|DistBackendError|DistNetworkError|Some NCCL operations have failed"
            r"|(?i:Connection closed by (?:remote )?peer)|Gloo connectFullMesh failed",
            True,
            "communication between ranks broke",
            "nccl|distbackenderror|distnetworkerror|closed by|gloo",
        ),
    ),
    *_causes(
        FailureClass.CUDA,
        Weight.ERROR,
        (
            r"(?i)NVRM: Xid|fallen off the bus|uncorrectable ECC|double[- ]bit ECC|unspecified launch failure"
            r"|(?:device|devices|device\(s\)) (?:is|are|is/are) busy or unavailable|GPU is lost|NVLink error",
            True,
            "a GPU or its driver failed; another GPU may not",
            "xid|the bus|ecc|launch failure|busy|is lost|nvlink error",
        ),
        (r"(?i)device-side assert", False, "an assertion failed on the GPU, often an index out of range", "assert"),
        (
            r"(?i)no kernel image is available|driver version is insufficient|Found no NVIDIA driver"
            r"|no CUDA-capable device|No CUDA GPUs are available|invalid device ordinal|not compiled with CUDA enabled",
            False,
            "the job and this machine's GPUs or driver do not fit",
            "kernel image|insufficient|found no|no cuda|ordinal|not compiled",
        ),
        (
            r"CUDA error: |CUDA_ERROR_|CUBLAS_STATUS_|CUDNN_STATUS_|cuDNN error|CUDA driver error|cudaError",
            False,
            "a CUDA operation failed",
            "cuda error|cuda_error|cublas_status|cudnn_status|cudnn error|cuda driver error|cudaerror",
        ),
    ),
    *_causes(
        FailureClass.DATA,
        Weight.ERROR,
        (r"(?i)No space left on device|Disk quota exceeded", False, "a disk is full", "no space|quota"),
        (
            r"(?i)Input/output error|Stale file handle|Transport endpoint is not connected|\[Errno 5\]",
            True,
            "storage could not be read for now",
            "input/output error|stale file|endpoint|errno 5",
        ),
        (
            r"(?:^|[\s.\]:])(?:FileNotFoundError|DatasetNotFoundError|NotADirectoryError|RepositoryNotFoundError)\b",
            False,
            "a file or dataset is missing",
            "notfounderror|notadirectoryerror",
        ),
        (
            r"UnidentifiedImageError|BadZipFile|UnicodeDecodeError|JSONDecodeError|ArrowInvalid|EmptyDataError|ParserError"
            r"|DatasetGenerationError|image file is truncated|(?i:corrupt(?:ed)? (?:record|image|JPEG|data|file))"
            r"|tarfile\.ReadError|Ran out of input",
            False,
            "data cannot be read: damaged, or of another format",
            "unidentifiedimageerror|badzipfile|unicodedecodeerror|jsondecodeerror|arrowinvalid|"
            "emptydataerror|parsererror|datasetgenerationerror|truncated|corrupt|readerror|ran out of input",
        ),
        (
            r"(?:^|[\s.\]:])(?:ReadTimeout|ConnectTimeout|ReadTimeoutError|MaxRetryError|HfHubHTTPError|HTTPError"
            r"|URLError|gaierror|ConnectionError)\b",
            True,
            "data could not be fetched over the network",
            "timeout|maxretryerror|httperror|urlerror|gaierror|connectionerror",
        ),
    ),
    *_causes(
        FailureClass.KILLED,
        Weight.SYMPTOM,
        (r"\*\*\* (?:JOB|STEP) [\w.]{1,40} ON \S{1,100} CANCELLED AT", False, "the job was cancelled", "cancelled at"),
        (
            r"^\s{0,4}(?:\S{1,200}: line \d{1,7}:\s{1,4}\d{1,9} )?Killed\b|\bSIGKILL\b|exit code 137\b"
            r"|exit ?code\s{0,4}:?\s{0,4}-9\b",
            True,
            "a process was killed, and nothing says by whom",
            "killed|sigkill|exit code|exitcode",
        ),
        (
            r"^\s{0,4}(?:\S{1,200}: line \d{1,7}:\s{1,4}\d{1,9} )?Terminated\b"
            r"|(?i:received (?:signal:? )?(?:SIGTERM|15\b))|SIGTERM\) received|SignalException"
            r"|exit code 143\b|exit ?code\s{0,4}:?\s{0,4}-15\b",
            True,
            "a process was told to end, and nothing says why",
            "terminated|sigterm|signal|exit code|exitcode",
        ),
    ),
    *_causes(
        FailureClass.USER_ERROR,
        Weight.ERROR,
        (
            r"ModuleNotFoundError: |ImportError: ",
            False,
            "a module cannot be imported",
            "modulenotfounderror|importerror",
        ),
        (
            r"^\s{0,8}(?:SyntaxError|IndentationError|TabError): ",
            False,
            "the source is not valid",
            "syntaxerror|indentationerror|taberror",
        ),
        (
            r"^\S{1,200}: error: (?:unrecognized|argument|the following|ambiguous|invalid)",
            False,
            "the launch line is wrong",
            ": error:",
        ),
        (
            r"can't open file|: command not found",
            False,
            "the launch line names something that is not there",
            "can't open|not found",
        ),
    ),
    *_causes(
        FailureClass.UNKNOWN,
        Weight.CONSEQUENCE,
        (
            r"ChildFailedError|CalledProcessError|exitcode\s{0,4}:\s{0,4}-?[1-9]|failed \(exitcode"
            r"|exited with code [1-9]|(?i:exit code [1-9])|Segmentation fault|core dumped|Fatal Python error"
            r"|srun: error|DataLoader worker .{1,60} exited unexpectedly",
            False,
            "a process failed, and nothing says why",
            "childfailederror|calledprocesserror|exitcode|exited|exit code|segmentation fault|core dumped|"
            "fatal python error|srun: error",
        ),
    ),
)

HINTS = (
    "error", "memory", "kill", "oom", "nccl", "xid", "exception", "sig", "preempt", "limit", "cancelled", "fail",
    "assert", "timeout", "timed out", "interrupt", "bad_alloc", "fault", "closed by", "stuck", "exhausted", "no space",
    "quota", "stale", "endpoint", "corrupt", "truncated", "ran out", "exit", "walltime", "terminated", "kernel image",
    "insufficient", "found no", "no cuda", "ordinal", "not compiled", "the bus", "ecc", "busy", "is lost", "gloo",
    "badzip", "arrowinvalid", "not found", "can't open", "core dumped", "cache blocks", "traceback", "errno", "spot ",
    "_status",
)  # fmt: skip
"""In lower case; a line with none of them holds no word of any cause, so most lines are not looked at twice."""


_USER = Cause(_PATTERN, (), FailureClass.USER_ERROR, Weight.ERROR, False, "the job's own code raised an exception")
_OTHER = Cause(
    _PATTERN, (), FailureClass.UNKNOWN, Weight.CONSEQUENCE, False, "an exception that may follow from another"
)


@dataclass(frozen=True, slots=True)
class LogFailure:
    """Why a job failed.

    Parameters
    ----------
    failure
        The class.
    retry
        Whether the same job may succeed if it is started again, unchanged.
    reason
        One line: what happened, and the line of the log that says so.
    lines
        Where the log says so, at most `MOST_LINES`, the first one first.
    """

    failure: FailureClass
    retry: bool
    reason: str
    lines: tuple[int, ...]


@dataclass(slots=True)
class _Symptoms:
    """Lines that one cause explains, and how far the job had got at the last of them."""

    cause: Cause
    text: str
    advances: int
    lines: list[int] = field(default_factory=list)


class Judge:
    """Gathers evidence line by line, in bounded memory."""

    def __init__(self) -> None:
        self._found: dict[Cause, _Symptoms] = {}
        self._traceback_until = 0

    def note(self, number: int, text: str, lowered: str, advances: int) -> None:
        """Take note of a line that holds one of the `HINTS`, given how often the job has got further so far."""
        if "Traceback (most recent call last)" in text:
            self._traceback_until = number + _TRACEBACK_LINES
            return
        cause = self._cause(number, text, lowered)
        if cause is None:
            return
        evidence = self._found.get(cause)
        if evidence is None or advances - evidence.advances >= WENT_ON:
            self._found.pop(cause, None)
            evidence = self._found[cause] = _Symptoms(cause, text, advances)
        evidence.advances = advances
        if len(evidence.lines) < MOST_LINES and number not in evidence.lines:
            evidence.lines.append(number)

    def _cause(self, number: int, text: str, lowered: str) -> Cause | None:
        for cause in CAUSES:
            if any(word in lowered for word in cause.words) and cause.pattern.search(text):
                return cause
        exception = _EXCEPTION.match(text) if number <= self._traceback_until else None
        if exception is None:
            return None
        return _OTHER if exception[1] in _CONSEQUENCES else _USER

    def verdict(self, advances: int) -> LogFailure | None:
        """Return the failure closest to the root, of those that the job did not survive; None if there is none."""
        left = [each for each in self._found.values() if advances - each.advances < WENT_ON]
        if not left:
            return None
        root = min(left, key=lambda each: (each.cause.weight, each.lines[0]))
        said = " ".join(root.text.split())
        quote = said if len(said) <= _LONGEST_QUOTE else said[:_LONGEST_QUOTE] + "..."
        return LogFailure(root.cause.failure, root.cause.retry, f"{root.cause.reason}: {quote}", tuple(root.lines))
