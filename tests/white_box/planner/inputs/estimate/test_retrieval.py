"""Past tasks whose text is alike enough, and only those."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.planner.inputs.estimate.past import past
from truenorth.planner.inputs.estimate.known import KnownTimes
from truenorth.planner.inputs.estimate.learned import Retrieval, documents, tf_idf, unit, words
from truenorth.planner.inputs.estimate.rungs import Answers
from truenorth.planner.inputs.estimate.tasks import History, TaskColumns, Tasks

COLUMNS = TaskColumns(("model",), ("text",))
ROWS = [
    {"model": "gpt2-small", "text": "train language model wikitext adamw fp16 batchSize 16", "s": 100},
    {"model": "gpt2-small", "text": "train language model wikitext adamw fp16 batchSize 16", "s": 120},
    {"model": "resnet50", "text": "image classification imagenet sgd augment crop flip", "s": 10},
]


def retrieve(text: str, history: History, model: str = "gpt2-medium", others_only: bool = False) -> Answers:
    retrieval = Retrieval(COLUMNS, tf_idf(history, COLUMNS), others_only=others_only)
    return retrieval.answer(Tasks.of([{"model": model, "text": text}], COLUMNS.all), KnownTimes(history, COLUMNS.key))


def test_an_unseen_model_takes_the_runs_of_the_job_that_reads_alike() -> None:
    answers = retrieve("train language model wikitext adamw fp16 batch_size 32", past(ROWS))
    # Two runs, 100 s and 120 s: the smallest with at least 50 % of the weight up to it; the ends lie beyond two runs.
    low, middle, high = (np.exp(answers.quantiles[0]) / 1e6).round(6)
    assert low < middle == 100.0 < 120.0 < high
    assert answers.neighbours[0] == ("gpt2-small",)


def test_what_is_mostly_new_resembles_nothing() -> None:
    assert not retrieve("train diffusion unet laion ema bf16 zero offload checkpointing", past(ROWS)).given[0]
    assert not retrieve("", past(ROWS), model="resnet101").given[0]


def test_for_calibration_a_models_own_past_is_left_out() -> None:
    text = str(ROWS[0]["text"])
    assert retrieve(text, past(ROWS), "gpt2-small").given[0]
    assert not retrieve(text, past(ROWS), "gpt2-small", others_only=True).given[0]


def test_runs_count_by_likeness_document_by_document() -> None:
    # Vectors by hand: the request equals the first document and has cosine 0.6 with the second. One run of 1 s weighs
    # 1, ten of 5 s together 0.6, so that the median is 1 s.
    vectors = {"a": [1.0, 0.0], "b": [0.6, 0.8], "a?": [2.0, 0.0], "c": [0.4, 0.9165]}
    rows = [{"model": "x", "text": "a", "s": 1}, *[{"model": "y", "text": "b", "s": 5}] * 10]
    history = past([*rows, {"model": "z", "text": "c", "s": 99}])

    def encoder(texts: Sequence[str]) -> np.ndarray:
        return np.array([vectors[text.rpartition("\n")[2]] for text in texts])

    asked = Tasks.of([{"model": "w", "text": "a?"}], COLUMNS.all)
    answers = Retrieval(COLUMNS, unit(encoder)).answer(asked, KnownTimes(history, COLUMNS.key))
    assert np.exp(answers.quantiles[0, 1]) / 1e6 == pytest.approx(1.0)
    assert answers.neighbours[0] == ("x", "y")  # z has cosine 0.4, below the gate of 0.5


def test_documents_hold_the_key_and_the_words_of_the_text() -> None:
    document = documents(Tasks.of([{"model": "opt", "text": "learningRate=1e-4 HTTPServer"}], COLUMNS.all), COLUMNS)[0]
    assert words(document) == ["model=opt", "learning", "rate", "1", "e", "4", "http", "server"]


def test_vectors_without_length_resemble_nothing() -> None:
    encode = unit(lambda texts: np.zeros((len(texts), 2)))
    assert encode(["a"]).tolist() == [[0.0, 0.0]]
    assert unit(lambda texts: np.array([[3.0, 4.0]]))(["a"])[0].tolist() == pytest.approx([0.6, 0.8])
