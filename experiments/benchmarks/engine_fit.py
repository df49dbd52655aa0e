"""``python -m experiments engine_fit FOLDER``: how well one law says what real engines did; a table of six figures.

The folder holds runs of vLLM as `experiments/benchmarks/engine_fit.md` lists them, which lie outside the tree.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import process_time

import truenorth as tn
from experiments.bench import ask
from truenorth.planner.answers.fit import FIGURES

RUNS = (
    ("rtxpro6000_llama_8b", 128, 2048, None, 1),
    ("rtxpro6000_qwen3_30b_a3b", 256, 4096, None, 1),
    ("rtxpro6000_qwen3_30b_a3b", 128, 2048, None, 2),
    ("rtxpro6000_qwen3_32b", 128, 2048, None, 1),
    ("rtx4090_llama_8b", 256, 2048, 41_408, 1),
    ("rtx4090_llama_8b", 256, 2048, None, 1),
    ("rtx4090_llama_8b_128", 128, 2048, None, 1),
)
"""Folder, seats and budget of an engine, its tokens of KV if they are told, and engines."""


def engine_fit(folder: Path) -> None:
    """Print a row per run: the error of each figure by the law of the earlier half, and by that of all requests."""
    print("| run | engines x seats | fitted to |", *(f"{name} |" for name in FIGURES), "KV | CPU s |")
    for name, seats, budget, kv_tokens, engines in RUNS:
        begun = process_time()
        found = tn.fit(
            folder / name / "requests.jsonl", seats=seats, budget=budget, kv_tokens=kv_tokens, engines=engines
        )
        taken = process_time() - begun
        for part in ("half", "whole"):
            errors = (f"{getattr(each, f'{part}_error'):+.1%} |" for each in found.figures)
            kv = "" if found.kv_tokens is None else getattr(found, part).room * found.limits.block
            print(f"| {name} | {engines} x {seats} | {part} |", *errors, f"{kv} | {taken:.1f} |", flush=True)


main = partial(ask, engine_fit)
