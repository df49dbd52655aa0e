"""Logs of tokens become streams: values derived by hand; shapes, prefix caches, and one line for whatever is wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Literal

import pytest

from truenorth.models.errors import QuestionError
from truenorth.models.identity import scenario_hash
from truenorth.models.scenario import InputError, load_scenario
from truenorth.planner.inputs.importers.catalogued import Catalogued
from truenorth.planner.inputs.importers.trace import Imported, import_trace
from truenorth.planner.show.inputs import summary_rows

CATALOGUE = """\
kinds:
  H100: {memory: 20 GB, load_bandwidth: 50 GB/s, price_per_hour: 4, count: 8}
  L40S: {memory: 18 GB, load_bandwidth: 25 GB/s, price_per_hour: 1.5}
models:
  chat:
    weights: 16 GB
    aliases: [org/Chat]
    stream:
      prefill: {H100: 8000 /s, L40S: 2000 /s}
      chunk: 2048
      concurrency: 4
      step: {H100: {1: 10 ms, 4: 20 ms}, L40S: {1: 30 ms, 4: 60 ms}}
      kv_per_token: 1 MB
slo: p95 first token <= 2 s
"""
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,800,11\n"
)
MOONCAKE = [
    {"timestamp": 0, "input_length": 1500, "output_length": 10, "hash_ids": [1, 2, 3]},
    {"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 9]},
    {"timestamp": 2000, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]},
    {"timestamp": 3000, "input_length": 1500, "output_length": 2, "hash_ids": [7, 2, 3]},
]


def lines(*rows: object) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def imported(
    folder: Path,
    log: str,
    options: str = "tokens",
    catalogue: str = CATALOGUE,
    cache: Literal["none", "ideal", "node"] = "none",
    **more: Any,
) -> Imported:
    (folder / "log").write_text(log)
    (folder / "catalogue.yaml").write_text(catalogue)
    known = Catalogued.load(folder / "catalogue.yaml")
    return import_trace(options, [folder / "log"], catalogue=known, cache=cache, **more)


def tokens(made: Imported) -> list[list[int]]:
    assert made.workload.served is not None
    found: list[list[int]] = made.workload.served.tokens.tolist()
    return found


def test_azure_becomes_a_scenario_that_is_read_again(tmp_path: Path) -> None:
    made = imported(tmp_path, AZURE)
    assert tokens(made) == [[374, 374, 44], [800, 800, 11]]
    assert made.workload.served is not None
    # On the H100: 374 / 8000 s + 43 x 10 ms = 476.75 ms; a decode is best at 4, 20 / 4 = 5 ms: 46.75 + 215 ms.
    assert made.workload.served.alone_us.tolist() == [476_750, 200_000]
    assert made.workload.served.least_us.tolist() == [261_750, 150_000]
    scenario, trace = made.save(tmp_path / "s.yaml")
    assert trace.read_text() == (
        "time_us,workflow,request.prompt,request.uncached,request.output\n0,chat,374,374,44\n4314579,chat,800,800,11\n"
    )
    read = load_scenario(scenario)
    assert read.instance.streams is not None
    assert read.instance.streams.prompt.tolist() == [374, 800]
    assert read.instance.streams.speeds[0][0].tau == (0, 10_000, 13_334, 16_667, 20_000)  # type: ignore[union-attr]
    assert scenario_hash(made.scenario.instance) == scenario_hash(read.instance)


def test_ideal_cache_has_the_blocks_of_earlier_requests_of_the_window(tmp_path: Path) -> None:
    log = lines(*MOONCAKE)
    assert tokens(imported(tmp_path, log)) == [[1500, 1500, 10], [1100, 1100, 5], [1024, 1024, 1], [1500, 1500, 2]]
    made = imported(tmp_path, log, cache="ideal")
    # Blocks 1 and 2 of 512 are known; the last token is always worked off; 7 is new, so nothing behind it counts.
    assert tokens(made) == [[1500, 1500, 10], [1100, 76, 5], [1024, 1, 1], [1500, 1500, 2]]
    # 3077 of 5124 prompt tokens are uncached.
    assert any("ideal prefix cache: 39.9% of the prompt tokens" in note and "a bound" in note for note in made.notes)
    later = imported(tmp_path, log, cache="ideal", window=("1 s", "9 s"))
    assert tokens(later) == [[1100, 1100, 5], [1024, 1, 1], [1500, 1500, 2]]


def test_nodes_cache_the_full_blocks_of_the_log(tmp_path: Path) -> None:
    log = lines(*MOONCAKE)
    made = imported(tmp_path, log, cache="node")
    assert tokens(made) == [[1500, 1500, 10], [1100, 1100, 5], [1024, 1024, 1], [1500, 1500, 2]]
    # Two full blocks of 512 each; 7 before 2 is another prefix. Blocks 1 and 2 recur after 1 s, twice.
    said = "4 of 8 full blocks of 512 tokens are of a prefix that came before, half of them within 1 s of the last time"
    assert any(said in note for note in made.notes)
    # Before anything is planned nobody knows what will be cached.
    rows = summary_rows(made)
    assert list(made.summary.tokens) == ["prompt", "output"]
    assert [name for name, said in rows.items() if "if nothing were cached" in said] == [
        "alone in s", "work", "fluid load",
    ]  # fmt: skip
    plain = imported(tmp_path, log)
    assert list(plain.summary.tokens) == ["prompt", "uncached", "output"]
    assert not any("nothing were cached" in said for said in summary_rows(plain).values())
    scenario, trace = made.save(tmp_path / "s.yaml")
    assert trace.read_text().splitlines()[:3] == [
        "time_us,workflow,request.prompt,request.output,request.blocks",
        "0,chat,1500,10,0 1",
        "1000000,chat,1100,5,0 1",
    ]
    read = load_scenario(scenario).instance
    assert read.streams is not None
    assert read.streams.prefixes is not None
    assert read.streams.prefixes.chains == ((0, 1), (0, 1), (0, 1), (2, 3))
    assert scenario_hash(made.scenario.instance) == scenario_hash(read)
    without = [{key: value for key, value in row.items() if key != "hash_ids"} for row in MOONCAKE]
    with pytest.raises(QuestionError, match="node takes the hashes of blocks"):
        imported(tmp_path, lines(*without), cache="node")
    grows = CATALOGUE.replace("kv_per_token", "kv: grows\n      kv_per_token")
    both = imported(tmp_path, log, catalogue=grows, cache="node").scenario.instance
    assert both.streams is not None
    assert both.streams.prefixes is not None
    assert both.streams.grows.all()
    with pytest.raises(QuestionError, match="blocks of 512 tokens are no multiple of chat's blocks of KV of 24"):
        imported(tmp_path, log, catalogue=grows.replace("kv_per_token", "block: 24\n      kv_per_token"), cache="node")


def test_answers_of_the_interface_name_model_and_usage(tmp_path: Path) -> None:
    def answer(second: int, model: str, prompt: int, output: int) -> dict[str, Any]:
        usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        return {"id": "x", "created": 1_700_000_000 + second, "model": model, "usage": usage, "who": "agents"}

    log = lines(
        answer(0, "org/chat", 10, 2), answer(2, "other", 5, 5), answer(3, "chat", 7, 0), answer(4, "chat", 9, 1)
    )
    made = imported(tmp_path, log, "tokens:workflow=who,user=who")
    assert tokens(made) == [[10, 10, 2], [9, 9, 1]]
    assert made.workload.release_us.tolist() == [0, 4_000_000]
    assert [workflow.name for workflow in made.workload.workflows] == ["chat agents"]
    assert made.tally.read == 4
    assert dict(made.tally.left_out) == {"of 0 output tokens": 1, "of other, which the catalogue does not have": 1}
    assert made.as_dict()["unmatched"] == {"other": 1}


def test_columns_by_option_and_one_value_for_every_kind(tmp_path: Path) -> None:
    every = CATALOGUE.replace("{H100: 8000 /s, L40S: 2000 /s}", "8000 /s")
    every = every.replace("{H100: {1: 10 ms, 4: 20 ms}, L40S: {1: 30 ms, 4: 60 ms}}", "{1: 10 ms, 4: 20 ms}")
    log = "when;in;out;blocks\n5;600;3;[a, b]\n10;600;3;[a, b]\n20;10;1;\n"
    options = "tokens:release=when,prompt=in,output=out,hashes=blocks,unit=ms,block=300"
    made = imported(tmp_path, log, options, every, cache="ideal")
    assert tokens(made) == [[600, 600, 3], [600, 1, 3], [10, 10, 1]]
    read = load_scenario(made.save(tmp_path / "s.yaml")[0])
    assert scenario_hash(made.scenario.instance) == scenario_hash(read.instance)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input_length": -3}, "input_length: '-3' is no whole number in range; allowed is a whole number from 0 to"),
        ({"output_length": 2.5}, "output_length: '2.5' is no whole number in range"),
        ({"output_length": None}, "output_length: '' is no whole number in range"),
        ({"hash_ids": 17}, "hash_ids: the value '17' stands here; allowed is a list of hashes"),
        ({"hash_ids": [[1]]}, "hash_ids: a list stands here; allowed is a list of hashes"),
        (
            {"hash_ids": [1, 2]},
            "hash_ids: '[1, 2]' are more blocks than the prompt has; allowed is at most one per 512",
        ),
        (
            {"input_length": 3999, "hash_ids": []},
            "input_length: 3999 prompt and 2 output tokens of chat fit the KV memory of no kind; "
            "allowed are at most 4000 together, the longest that fits (H100)",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_can_be_counted(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    good = {"timestamp": 0, "input_length": 100, "output_length": 2, "hash_ids": [1]}
    log = lines(good, good, good | row)
    with pytest.raises(InputError) as refused:
        imported(tmp_path, log)
    assert str(refused.value).startswith(f"{tmp_path / 'log'}:3: {message}")
    made = imported(tmp_path, log, skip_malformed=True)
    assert len(tokens(made)) == 2
    assert sum(made.tally.refused.values()) == 1


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    draw = random.Random(30)
    rows: list[object] = [
        {"timestamp": at * 100, "input_length": draw.randint(1, 900), "output_length": draw.randint(1, 90)}
        for at in range(8000)
    ]
    rows[7300] = '{"timestamp": 730000, "input_length": 5, "outp'
    with pytest.raises(InputError, match=r"log:7301: "):
        imported(tmp_path, lines(*rows))
    assert imported(tmp_path, lines(*rows), skip_malformed=True).tally.read == 8000


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("", r"log:1: file: is empty; allowed is CSV with a header"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", r"log:1: file: has no rows"),
        (
            "a,b\n1,2\n",
            r"log:1: columns: of no known shape, with 'a', 'b'; allowed is such as tokens:release=COL",
        ),
        (lines({"timestamp": 1, "input_length": 5}), r"log:1: columns: of no known shape, with 'timestamp'"),
        (
            lines(MOONCAKE[0], {"timestamp": 1, "input_length": 5, "hash_ids": []}),
            r"log:2: row: has no key 'output_length'",
        ),
    ],
)
def test_what_is_no_such_log(tmp_path: Path, log: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        imported(tmp_path, log)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("4: 20 ms", "4: 9 ms", r"yaml:12: models.chat.stream.step.H100.4: a step of 4 takes 9000 us, less than"),
        ("8000 /s", "0 /s", r"yaml:9: models.chat.stream.prefill.H100: "),
        ("L40S: 2000", "L4: 2000", r"yaml:\d+: models.chat.stream"),
        (
            "slo: p95 first token",
            "slo: p95 latency of chatt",
            r"yaml: slo: the level .* is over 'chatt', no model of the",
        ),
        ("16 GB\n", "16 GB\n    share: 0.5\n", r"yaml:\d+: models.chat: has a stream, and share or memory"),
    ],
)
def test_what_is_wrong_with_a_catalogue(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        imported(tmp_path, AZURE, catalogue=CATALOGUE.replace(old, new, 1))


def test_what_is_asked_for_in_vain(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match=r"ideal takes the hashes of blocks, which are not read"):
        imported(tmp_path, AZURE, cache="ideal")
    with pytest.raises(QuestionError, match="tokens takes a catalogue that says how engines serve"):
        import_trace("tokens", [tmp_path / "log"])
    with pytest.raises(
        QuestionError, match="chat is served in a stream, by tokens; allowed is truenorth import tokens"
    ):
        imported(tmp_path, AZURE, "azure-llm:model=chat")
    with pytest.raises(QuestionError, match=r"is about tokens; allowed is with the format tokens"):
        imported(tmp_path, AZURE, "azure-llm", cache="ideal")


def test_split_reads_as_prefill_and_decode(tmp_path: Path) -> None:
    made = imported(tmp_path, lines(*MOONCAKE), split=True)
    scenario, trace = made.save(tmp_path / "s.yaml")
    # The third answer is one token, which is the prefill's: its job takes the branch without decode.
    assert trace.read_text() == (
        "time_us,workflow,prefill.prompt,prefill.uncached,decode.prompt,decode.output,path\n"
        "0,chat,1500,1500,1501,9,0\n"
        "1000000,chat,1100,1100,1101,4,0\n"
        "2000000,chat,1024,1024,,,1\n"
        "3000000,chat,1500,1500,1501,1,0\n"
    )
    read = load_scenario(scenario)
    assert scenario_hash(read.instance) == scenario_hash(made.scenario.instance)
    kinds = ["H100 prefill"] * 8 + ["H100 decode"] * 8 + ["L40S prefill"] * 4 + ["L40S decode"] * 4
    assert [gpu.kind for gpu in read.cluster.gpus] == kinds
    assert [float(group.price_per_hour or 0) for group in read.document.cluster.server_groups] == [4, 4, 1.5, 1.5]
    (workflow,) = read.workflows
    assert [float(branch.probability) for branch in workflow.branches] == [0.75, 0.25]
    # Figures of the log stay those of its requests.
    assert made.summary.as_dict()["jobs"] == 4


@pytest.mark.parametrize("cache", ["ideal", "node"])
def test_split_computes_what_no_cache_has(tmp_path: Path, cache: Literal["ideal", "node"]) -> None:
    made = imported(tmp_path, lines(*MOONCAKE[:2]), cache=cache, split=True)
    read = load_scenario(made.save(tmp_path / "s.yaml")[0])
    second = read.jobs[1].tokens_of(read.jobs[1].workflow.tasks[0])
    assert second == ((1100, 76, 1) if cache == "ideal" else (1100, 1100, 1))
    assert scenario_hash(read.instance) == scenario_hash(made.scenario.instance)
    streams = read.instance.streams
    assert streams is not None
    assert [stream.prefix_block for stream in streams.classes] == ([0, 0] if cache == "ideal" else [512, 0])


def test_split_is_about_tokens(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match=r"split: is about tokens; allowed is with the format tokens"):
        import_trace("table", [tmp_path / "log"], split=True)
