"""What is shown of first tokens, time per token and tokens: derived by hand, and the same everywhere."""

from io import StringIO
from pathlib import Path

from rich.console import Console

import truenorth as tn
from truenorth.models.metrics import StreamMetrics
from truenorth.models.record import encode
from truenorth.planner.show.comparison import comparison_view, tokens
from truenorth.planner.show.summaries import simulation_summary

# 1 ms per prompt token, chunks of 10, steps of 5 ms alone and 7 ms for two; the case by hand of the strides. First
# tokens come at 30, 30 and 39 ms; the first request decodes 2 tokens in 16 ms, the third 1 in 7 ms. KV is at its most
# from 20 to 30 ms, with 25 + 3 and 5 + 1 tokens, and from 30 ms on, with 25 + 3 and 4 + 2.
CHAT = tn.load(
    {
        "cluster": {"servers": 1, "gpu": {"kind": "A", "memory": "1 GB", "load_bandwidth": "1 GB/s"}},
        "streams": {
            "chat": {
                "prefill": "1000 /s",
                "chunk": 10,
                "concurrency": 2,
                "step": {1: "5 ms", 2: "7 ms"},
                "kv_per_token": "1 KB",
            }
        },
        "workflows": {"ask": {"tasks": {"answer": {"stream": "chat", "prompt": 1, "output_tokens": 1}}}},
        "workload": {
            "jobs": [
                {"release": "0 s", "workflow": "ask", "tokens": {"answer": tokens}}
                for tokens in ([25, 25, 3], [5, 5, 1], [4, 4, 2])
            ]
        },
    }
)
FIGURES = ["0.033", "0.03", "0.039", "0.039", "7.5", "7", "8", "8", "130", "34 KB"]


def test_a_simulation_tells_of_tokens() -> None:
    said = simulation_summary(tn.simulate(CHAT, "round_robin"))
    assert said["first token in s"] == "mean 0.033, p50 0.03, p95 0.039, p99 0.039"
    assert said["ms per token"] == "mean 7.5, p50 7, p95 8, p99 8"
    assert said["tokens"] == "34 of prompts, 6 of answers, 130.4 of them per s; at most 34 KB of KV on a GPU"


def test_whose_first_token_counts_is_told_where_jobs_have_several_requests() -> None:
    # Calls of one token each: 10 ms of prompt, 1 s of a tool, 10 ms of prompt. The rule: the last one's counts.
    calls = {"first": {}, "second": {"after": {"first": {"delay": "1 s"}}}}
    tasks = {name: {"stream": "chat", "prompt": 10, "output_tokens": 1, **own} for name, own in calls.items()}
    changed = CHAT.changed(
        {"workflows": {"ask": {"tasks": tasks}}, "workload": {"jobs": [{"release": "0 s", "workflow": "ask"}]}}
    )
    made = tn.simulate(changed, "round_robin")
    assert isinstance(made.metrics, StreamMetrics)
    assert made.metrics.mean_first_token_s == 1.02
    whose = "of each job's last request, unless one says first_token"
    assert simulation_summary(made)["first token in s"].endswith(f"({whose})")
    marked = changed.changed({"workflows.ask.tasks.first.first_token": True})
    assert encode(tn.simulate(marked, "round_robin").metrics)["mean_first_token_s"] == 0.01
    (table,) = tokens([("round_robin", made.metrics)])
    assert table.title == f"First tokens ({whose}), and time per token behind them"


def test_a_comparison_tells_of_tokens_on_a_terminal_in_files_and_on_a_page(tmp_path: Path) -> None:
    policy = "least_tokens:known=yes"
    made = tn.compare(CHAT, [policy], time_limit=1)
    tn.save(made, tmp_path)
    line = f"| {policy} | {' | '.join(FIGURES)} |"
    assert line in (tmp_path / "tokens.md").read_text().splitlines()
    console = Console(width=200, file=StringIO(), record=True)
    console.print(comparison_view(made))
    assert " ".join([policy, *FIGURES]) in " ".join(console.export_text().replace("│", " ").split())
    table = tn.report([tmp_path]).sections[0].tables[1]
    assert [policy, *FIGURES] in table.cells()
