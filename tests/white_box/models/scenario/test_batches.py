# ruff: noqa: E501 (a message is one line)
"""Batch classes, shares and memory of tasks in a scenario file: what is read, what is refused, and what the hash feels."""

from pathlib import Path

import pytest

from tests.models.scenario.small import SMALL, changed, loaded, refused
from truenorth.models import NEVER, BatchClass, scenario_hash
from truenorth.models.scenario import scenario_from, workflow_graph, workflow_section

OPT = "{models: [opt], runtime: 560 ms, output: 2 KB}"
CLASS = "{models: [opt], runtime: {T4: {1: 560 ms, 2: 700 ms, 4: 980 ms}}, share: 0.5, memory: 300 MB}"


def batched(klass: str = CLASS, task: str = "{batch: chat, output: 2 KB}", name: str = "chat") -> str:
    """Return the small scenario with one class, in the last line, and the first task in it."""
    return changed(OPT, task) + f"batches:\n  {name}: {klass}\n"


def test_a_class_and_the_task_in_it(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, batched())
    chat = BatchClass("chat", {"T4": {1: 560_000, 2: 700_000, 4: 980_000}}, ("opt",), 5000, 300_000_000)
    assert scenario.instance.batches == (chat,)
    opt, nli = scenario.instance.workflows[0].tasks
    assert (opt.batch, opt.runtime_us, opt.models, opt.share) == (chat, {"T4": 560_000}, ("opt",), 5000)
    assert (nli.batch, nli.share, nli.memory_bytes) == (None, 10_000, 0)
    assert scenario.instance.batch_us.tolist() == [[[NEVER, 560_000, 700_000, 980_000, 980_000]]]
    assert nli.inputs[0].size_bytes == 2_000
    # P_j counts size 1: 560 + 27 ms.
    assert scenario.instance.job_critical_us.tolist() == [587_000, 587_000]


def test_one_table_for_every_kind_and_json_keys(tmp_path: Path) -> None:
    every = loaded(tmp_path, batched("{runtime: {1: 5 ms, 8: 9 ms}}")).instance.batches[0]
    assert every == BatchClass("chat", {"*": {1: 5_000, 8: 9_000}})
    data = {
        "cluster": {"servers": 1, "gpu": {"kind": "T4", "memory": "4 GB", "load_bandwidth": "1 GB/s"}},
        "workflows": {
            "w": {"tasks": {"t": {"batch": "c"}, "s": {"runtime": "1 ms", "share": 0.1428, "memory": "2 GB"}}}
        },
        "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
        "batches": {"c": {"runtime": {1: "5 ms", 2: "6 ms"}}},
    }
    instance = scenario_from(data).instance
    assert instance.batches == (BatchClass("c", {"*": {1: 5_000, 2: 6_000}}),)
    assert instance.template_share.tolist() == [10_000, 1_428]
    assert instance.template_memory.tolist() == [0, 2_000_000_000]


def test_a_workflow_of_batches_and_shares_is_a_graph_and_back(tmp_path: Path) -> None:
    pytest.importorskip("networkx")
    text = batched().replace("27 ms}", "27 ms}, share: 0.25, memory: 1 MB")
    given = loaded(tmp_path, text)
    again = scenario_from(
        given_data(text) | {"workflows": {"qa": workflow_section(workflow_graph(given.instance.workflows[0]))}}
    )
    assert again.instance.workflows == given.instance.workflows


def given_data(text: str) -> dict[str, object]:
    from truenorth.models.scenario.reading import parse_yaml

    data = parse_yaml(text, "small").data()
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize(
    "same",
    [
        changed("objective:", "batches: {unused: {runtime: {1: 5 ms, 2: 6 ms}}}\nobjective:"),
        changed(OPT, OPT.replace("}", ", share: 1}")),
        changed(OPT, OPT.replace("}", ", share: 1.0000, memory: 0 B}")),
    ],
)
def test_the_hash_does_not_feel_what_changes_nothing(tmp_path: Path, same: str) -> None:
    assert scenario_hash(loaded(tmp_path, same).instance) == scenario_hash(loaded(tmp_path, SMALL).instance)


@pytest.mark.parametrize(
    "other",
    [
        SMALL,
        batched(CLASS.replace("980", "981")),
        batched(CLASS.replace("4: 980 ms", "3: 980 ms")),
        batched(CLASS.replace("0.5", "0.25")),
        batched(CLASS.replace("300 MB", "301 MB")),
        batched(CLASS.replace("models: [opt], ", "")),
        batched(task="{batch: talk, output: 2 KB}", name="talk"),
    ],
)
def test_the_hash_feels_a_used_class(tmp_path: Path, other: str) -> None:
    assert scenario_hash(loaded(tmp_path, other).instance) != scenario_hash(loaded(tmp_path, batched()).instance)


BATCHED_TASK = "12: workflows.qa.tasks.opt"
TABLE = "a table such as {1: 560 ms, 4: 980 ms}"
REFUSED = [
    (
        batched("{runtime: {2: 5 ms}}"),
        f"20: batches.chat.runtime: lists no size 1; allowed is {TABLE}",
    ),
    (
        batched("{runtime: {T4: {1: 5 ms}, A10: {2: 5 ms}}}"),
        f"20: batches.chat.runtime.A10: lists no size 1; allowed is {TABLE}",
    ),
    (
        batched("{runtime: {1: 5 ms, 4: 3 ms}}"),
        "20: batches.chat.runtime.4: size 4 takes 3000 us, less than the 5000 us of size 1; allowed are times that do not fall with the size",
    ),
    (
        batched("{runtime: 5 ms}"),
        f"20: batches.chat.runtime: the value '5 ms' stands here; allowed is {TABLE}, or one per kind of GPU",
    ),
    (batched("{runtime: {}}"), "20: batches.chat.runtime: is empty; allowed is at least one table by batch size"),
    (
        batched("{runtime: {1: 5 ms, 02: 6 ms}}"),
        "20: batches.chat.runtime.02: '02' is no batch size; allowed is a whole number from 1 to 9999",
    ),
    (
        batched("{runtime: {1: 5 ms, 10000: 6 ms}}"),
        "20: batches.chat.runtime.10000: '10000' is no batch size; allowed is a whole number from 1 to 9999",
    ),
    (
        batched("{models: [opt]}"),
        "20: batches.chat: key 'runtime' is missing; allowed are the keys models, runtime, share, memory",
    ),
    (
        batched("{models: [opf], runtime: {1: 5 ms}}"),
        "20: batches.chat.models[0]: unknown model 'opf'; did you mean 'opt'? allowed are opt, nli",
    ),
    (
        batched(task="{batch: chit}"),
        f"{BATCHED_TASK}.batch: unknown batch class 'chit'; did you mean 'chat'? allowed are chat",
    ),
    (
        changed(OPT, "{batch: chat}"),
        f"{BATCHED_TASK}.batch: unknown batch class 'chat'; allowed are names that the file defines, and it defines none",
    ),
    (
        batched(task="{batch: chat, runtime: 5 ms}"),
        f"{BATCHED_TASK}: has batch and runtime; allowed is exactly one of batch, modes, runtime, stream",
    ),
    (
        changed(OPT, "{models: [opt]}"),
        f"{BATCHED_TASK}: has none of batch, modes, runtime, stream; allowed is exactly one of batch, modes, runtime, stream",
    ),
    *(
        (
            batched(task=f"{{batch: chat, {key}: {value}}}"),
            f"{BATCHED_TASK}.{key}: has batch and {key}; allowed is batch in place of models, runtime, share and memory",
        )
        for key, value in (("models", "[]"), ("share", "1"), ("memory", "0 B"))
    ),
    *(
        (
            changed(OPT, OPT.replace("}", f", share: {share}}}")),
            f"{BATCHED_TASK}.share: '{share.strip(chr(39))}' is no share; allowed is a number above 0 and at most 1, to four decimal places",
        )
        for share in ("0", "1.2", "0.12345", "half", "-0.5", "'0.5'")
    ),
    (
        changed(OPT, OPT.replace("}", ", memory: 9 GB}")),
        f"{BATCHED_TASK}: qa/opt can run on no GPU: its models (6000000000 bytes) and the 9000000000 bytes that it holds beside them fit no eligible GPU together; allowed is a task that some GPU can run",
    ),
    (
        changed("memory: 14 GB", "slots: [7 GB, 7 GB]").replace(OPT, OPT.replace("}", ", memory: 1 B}")),
        f"{BATCHED_TASK}: qa/opt can run on no GPU: it holds 1 bytes beside its models, and every eligible GPU has slots; allowed is a task that some GPU can run",
    ),
    (
        batched().replace("memory: 14 GB", "slots: [7 GB, 7 GB]"),
        f"{BATCHED_TASK}: qa/opt can run on no GPU: it holds 300000000 bytes beside its models, and every eligible GPU has slots; allowed is a task that some GPU can run",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_message(tmp_path: Path, text: str, message: str) -> None:
    assert refused(tmp_path, text) == f"scenario.yaml:{message}"


@pytest.mark.parametrize("share", ["0.0001", "0.1428", "1", "1.0", "25e-2", ".5"])
def test_shares_that_are_read(tmp_path: Path, share: str) -> None:
    text = changed(OPT, OPT.replace("}", f", share: {share}}}"))
    assert loaded(tmp_path, text).instance.template_share[0] == round(float(share) * 10_000)
