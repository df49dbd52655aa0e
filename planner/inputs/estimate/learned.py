"""The rungs that learn from the whole history: gradient-boosted quantiles, and retrieval of the tasks most alike.

Boosted are three fits of the log run time on a task's features and on what ran lately: for the exact key and each
back-off, the last run and the median of the latest ones that were known when the task was asked about. A trace drifts,
and its latest runs say where to.

Retrieval pools those past tasks whose text is most alike, if any is alike enough, by likeness. By default TF-IDF weighs
words by how rare they are (Salton and Buckley, 1988); any sentence encoder can take its place.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from truenorth.models.instance import Ints
from truenorth.planner.inputs.estimate.known import LEVELS, KnownTimes, PastRuns
from truenorth.planner.inputs.estimate.rungs import AnswerError, Answers, ask_own, pooled_quantiles
from truenorth.planner.inputs.estimate.tasks import UNKNOWN, Floats, History, TaskColumns, Tasks, Texts

LEAST_TASKS = 500
"""Fewest past tasks worth a fit."""
MOST_TASKS = 200_000
"""Most past tasks that are fitted: the latest."""
_FORGOTTEN, _FEWEST_FORGOTTEN = 0.1, 250
"""Share of the tasks, and at least so many, whose longest keys are taken for new in the fit."""
_MOST_VALUES = 254
"""Most values of a column taken as a category, which is what scikit-learn allows; longer ones count through the key."""


@dataclass(frozen=True, slots=True)
class Boosted:
    """Three fitted quantiles.

    Parameters
    ----------
    encoder
        Turns tasks into numbers.
    told
        Which columns of the matrix say anything of any past task: the fits know only those. Shape [columns].
    fits
        A fitted `HistGradientBoostingRegressor` per level.
    new_key
        Take every exact key for new, and what ran of it for unknown: for calibration.
    """

    encoder: Encoder
    told: NDArray[np.bool_]
    fits: Sequence[Any]
    new_key: bool = False
    name: str = "boosted"

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return the fitted quantiles of tasks whose first key value is known."""
        answers, seen = Answers.silent(len(tasks)), known.seen(tasks)
        if seen.any():
            matrix = self.encoder.matrix(tasks.take(seen), known)
            if self.new_key:
                _hide(matrix, len(known.levels), level=0)
            with _one_thread():
                answers.set(seen, np.column_stack([fit.predict(matrix[:, self.told]) for fit in self.fits]))
        return answers


@dataclass(frozen=True, slots=True)
class Encoder:
    """How tasks become numbers: plain ones, categories, and what ran lately.

    Parameters
    ----------
    numbers
        Columns that are numbers.
    categories
        The values of each other column, by column; their position is their code.
    """

    numbers: tuple[str, ...]
    categories: dict[str, dict[str, int]]

    @classmethod
    def of(cls, tasks: Tasks, columns: TaskColumns) -> Encoder:
        """Return the encoder of past tasks: a column whose values are all numbers is a number."""
        numbers, categories = [], {}
        for name in dict.fromkeys((*columns.key, *columns.features)):
            values = sorted({str(value) for value in tasks.text(name)} - {UNKNOWN})
            if not values:
                continue
            if not np.isnan(tasks.numbers(name)[tasks.text(name) != UNKNOWN]).any():
                numbers.append(name)
            elif len(values) <= _MOST_VALUES:
                categories[name] = {value: code for code, value in enumerate(values)}
        return cls(tuple(numbers), categories)

    @property
    def categorical(self) -> list[int]:
        """Positions of the categories in the matrix."""
        return list(range(len(self.numbers), len(self.numbers) + len(self.categories)))

    def matrix(self, tasks: Tasks, known: KnownTimes) -> Floats:
        """Return the numbers of some tasks, NaN where unknown. Shape [tasks, numbers + categories + 2 x levels]."""
        parts = [tasks.numbers(name) for name in self.numbers]
        for name, codes in self.categories.items():
            parts.append(np.array([codes.get(value, np.nan) for value in tasks.text(name)], np.float64))
        for names in known.levels:
            runs, latest = known.runs(names), known.latest(names, tasks)
            parts += [np.where(latest >= 0, values[latest], np.nan) for values in (runs.log_us, runs.quantiles[:, 1])]
        return np.column_stack(parts)


def fit_boosted(known: KnownTimes, columns: TaskColumns, seed: int) -> Boosted | None:
    """Fit the quantiles of past tasks, each seen with what was known when it was asked about.

    Returns
    -------
    Boosted | None
        None for fewer than `LEAST_TASKS` tasks.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    history = known.history
    if len(history) < LEAST_TASKS:
        return None
    latest = np.arange(max(0, len(history) - MOST_TASKS), len(history))
    tasks = history.tasks.take(latest)
    encoder = Encoder.of(tasks, columns)
    matrix, target = encoder.matrix(tasks, known), history.log_runtime[latest]
    _forget(matrix, len(known.levels), np.random.default_rng(seed))
    told = np.asarray(~np.isnan(matrix).all(axis=0))
    with _one_thread():
        fits = [
            HistGradientBoostingRegressor(
                loss="quantile",
                quantile=level,
                learning_rate=0.05,
                max_iter=200,
                min_samples_leaf=50,
                categorical_features=encoder.categorical,
                early_stopping=False,
                random_state=seed,
            ).fit(matrix[:, told], target)
            for level in LEVELS
        ]
    return Boosted(encoder, told, fits)


def _one_thread() -> AbstractContextManager[object]:
    """Keep scikit-learn to one thread: sums then repeat on any machine, and no threads spin on a busy one."""
    limits: AbstractContextManager[object] = import_module("threadpoolctl").threadpool_limits(1)
    return limits


def _forget(matrix: Floats, levels: int, draws: np.random.Generator) -> None:
    """Hide, for some tasks, what ran lately of their longest keys, so that the fit learns what to make of a new one."""
    share = max(_FORGOTTEN, _FEWEST_FORGOTTEN / len(matrix))
    hidden = np.where(draws.random(len(matrix)) < share, draws.integers(0, levels, len(matrix)), 0)
    for level in range(levels - 1):
        _hide(matrix, levels, level, hidden > level)


def _hide(matrix: Floats, levels: int, level: int, rows: NDArray[np.bool_] | slice = slice(None)) -> None:
    """Hide what ran lately of a key: of the exact one at level 0, of shorter ones at the next."""
    at = matrix.shape[1] - 2 * (levels - level)
    matrix[rows, at : at + 2] = np.nan


SentenceEncoder: TypeAlias = Callable[[Sequence[str]], NDArray[np.floating[Any]]]
"""Turns texts into vectors, the cosine of which says how alike they are. Shape [texts, dimensions]."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_FIELD, _FIELDS_END = "=", "\n\n"
_CHUNK = 512


@dataclass(frozen=True, slots=True, eq=False)
class Retrieval:
    """Quantiles of the runs of the most similar past tasks.

    Parameters
    ----------
    columns
        The key's columns count as ``column=value``, the text columns by their words.
    encode
        Vectors of unit length of some documents, dense or sparse. Shape [documents, dimensions].
    nearest
        Most documents that are pooled.
    gate
        Least cosine of one that is.
    others_only
        Leave out past tasks of the same first key value, as if it were unseen: for calibration.
    """

    columns: TaskColumns
    encode: Callable[[Sequence[str]], Any]
    nearest: int = 10
    gate: float = 0.5
    others_only: bool = False
    name: str = "retrieval"

    def answer(self, tasks: Tasks, known: KnownTimes) -> Answers:
        """Return the quantiles of tasks that resemble past ones."""
        answers = Answers.silent(len(tasks))
        past = known.once(("documents", self.encode), lambda: self._past(known.history, known.key))
        asked = documents(tasks, self.columns)
        for text, (places, likeness) in self._alike(list(dict.fromkeys(asked)), past):
            rows = np.flatnonzero(asked == text)
            for asked_us in np.unique(tasks.asked_us[rows]):
                latest = past.runs.latest(past.runs.names[places], np.full(len(places), asked_us))
                kept = np.flatnonzero(latest >= 0)[: self.nearest]
                if len(kept):
                    at_once = rows[tasks.asked_us[rows] == asked_us]
                    answers.quantiles[at_once] = _pooled(past.runs, latest[kept], likeness[kept], asked_us)
                    for row in at_once:
                        answers.neighbours[row] = tuple(past.keys[places[kept]])
        return answers

    def _past(self, history: History, key: Sequence[str]) -> _Past:
        texts = documents(history.tasks, self.columns)
        runs, keys = PastRuns(history, texts), dict(zip(texts, history.tasks.keys(key), strict=True))
        return _Past(runs, np.array([keys[name] for name in runs.names], np.object_), self.encode(list(runs.names)))

    def _alike(self, asked: Sequence[str], past: _Past) -> Iterator[tuple[str, tuple[Ints, Floats]]]:
        """Yield, per text, the past documents that pass the gate, most alike first, and their cosines."""
        models = np.array([_model(name) for name in past.runs.names], np.object_)
        for start in range(0, len(asked), _CHUNK):
            chunk = asked[start : start + _CHUNK]
            product = self.encode(chunk) @ past.vectors.T
            cosines = product if isinstance(product, np.ndarray) else product.toarray()
            for text, row in zip(chunk, cosines, strict=True):
                passing = row >= self.gate
                if self.others_only:
                    passing &= models != _model(text)
                places = np.flatnonzero(passing)
                order = np.argsort(-row[places], kind="stable")
                yield text, (places[order], row[places][order])


@dataclass(frozen=True, slots=True, eq=False)
class _Past:
    """Every past document once: its runs, the key of a task that has it, and its vector."""

    runs: PastRuns
    keys: Texts
    vectors: Any


def _pooled(runs: PastRuns, latest: Ints, likeness: Floats, asked_us: int) -> Floats:
    """Return quantiles from several documents' latest runs, each document weighing as much as it is alike."""
    windows = [runs.window(at) for at in latest]
    weights = [np.full(len(window), cosine / len(window)) for window, cosine in zip(windows, likeness, strict=True)]
    return pooled_quantiles(np.concatenate(windows), np.concatenate(weights), runs.overall_scatter(asked_us))


def documents(tasks: Tasks, columns: TaskColumns) -> Texts:
    """Return what each task is compared by: its key, then its text. Shape [tasks]."""
    key = [(name, tasks.text(name)) for name in columns.key]
    text = [tasks.text(name) for name in columns.text]
    made = np.empty(len(tasks), np.object_)
    for row in range(len(tasks)):
        fields = "\n".join(f"{name}{_FIELD}{values[row]}" for name, values in key)
        made[row] = fields + _FIELDS_END + "\n".join(values[row] for values in text)
    return made


def words(document: str) -> list[str]:
    r"""Return the known fields of a document as they stand, and the words of its text in lower case.

    >>> words("model=opt\nsteps=\n\ntrain_gpt2.py batchSize: 16")
    ['model=opt', 'train', 'gpt', '2', 'py', 'batch', 'size', '16']
    """
    fields, _, text = document.partition(_FIELDS_END)
    kept = [field for field in fields.split("\n") if field.partition(_FIELD)[2] != UNKNOWN]
    return kept + [word.lower() for word in _WORD.findall(text)]


def _model(document: str) -> str:
    return document.partition("\n")[0]


def tf_idf(history: History, columns: TaskColumns) -> Callable[[Sequence[str]], Any]:
    """Return an encoder whose words and weights come from past tasks.

    A word that no past task has counts as rarer than any, and has no direction: what is mostly new resembles nothing.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    past = list(dict.fromkeys(documents(history.tasks, columns)))
    vectorizer = TfidfVectorizer(analyzer=words, sublinear_tf=True, norm=None).fit(past)
    rarest = math.log(1 + len(past)) + 1  # scikit-learn's smoothed weight of a word in no document

    def unknown(text: str) -> float:
        counts = Counter(word for word in words(text) if word not in vectorizer.vocabulary_)
        return sum(((1 + math.log(count)) * rarest) ** 2 for count in counts.values())

    def encode(texts: Sequence[str]) -> Any:
        vectors = vectorizer.transform(texts)
        known = np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel()
        length = np.sqrt(known + np.array([unknown(text) for text in texts]))
        return vectors.multiply(1 / np.where(length > 0, length, 1)[:, None]).tocsr()

    return encode


def unit(encoder: SentenceEncoder) -> Callable[[Sequence[str]], NDArray[np.float64]]:
    """Return an encoder whose vectors have length one; what has none stays 0 and resembles nothing.

    It raises AnswerError where the user's encoder raises, or gives anything but a vector of numbers for each text.
    """

    def encode(texts: Sequence[str]) -> NDArray[np.float64]:
        vectors: NDArray[np.float64] = ask_own("encoder", lambda asked: np.asarray(encoder(asked), np.float64), texts)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            given = f"gave numbers of shape {list(vectors.shape)} for {len(texts)} texts"
            raise AnswerError(f"--encoder: {given}; allowed is a vector of finite numbers for each")
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(length > 0, length, 1)

    return encode
