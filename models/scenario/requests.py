"""From the document's streams to stream classes, and the tokens that tasks, jobs and traces give to requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from truenorth.models.cluster import GPU
from truenorth.models.scenario.document import ScenarioDocument
from truenorth.models.scenario.errors import FieldError, Where, allowed, blame, quote
from truenorth.models.scenario.quantities import KV, MAX_TOKENS
from truenorth.models.scenario.stream_section import StreamSection
from truenorth.models.stream_tables import longest_on
from truenorth.models.streams import Fitted, StreamClass, Tokens
from truenorth.models.tables import LARGEST
from truenorth.models.units import QuantityError

TOKEN_COLUMNS = ("prompt", "uncached", "output")
"""What a column of a trace may say of the tokens of a request, behind the name of its task and a point."""
BLOCKS_COLUMN = "blocks"
"""The same, of the blocks of its prompt."""
_MOST_DIGITS = 18


def stream_class(name: str, section: StreamSection) -> StreamClass:
    """Return a stream class; whether there are its models is for the first task to say that names it."""
    with blame(("streams", name), "a class such as the documentation shows"):
        fitted = [
            Fitted(name, kind, log.log, log.requests, _float(log.mean_error), _float(log.p95_error))
            for kind, log in section.fits.items()
        ]
        adapters = tuple(f"{name}/{adapter}" for adapter in section.adapters)
        block = section.prefix_block if section.prefix_cache == "node" else 0
        by_degree = section.modes is not None
        return StreamClass(name, section.laws, section.models, tuple(fitted), adapters, by_degree, block)


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


@dataclass(frozen=True, slots=True)
class RequestForm:
    """How the requests of a task get their tokens: what the task says of them, and what a job or a trace must add.

    Parameters
    ----------
    prompt, uncached, output
        What the task says; None: nothing.
    takes_kv
        Whether KV is moved to it, so that nothing of the prompt need be left.
    longest
        Most tokens of KV of a request that some GPU can hold.
    optional
        Whether a job may take a branch without it, and then needs no tokens for it.
    blocks
        What the task says of the blocks of its prompt.
    block
        Tokens of a block that nodes cache; 0: none is cached.
    """

    prompt: int | None
    uncached: int | None
    output: int | None
    takes_kv: bool
    longest: int
    optional: bool
    blocks: tuple[int, ...] = ()
    block: int = 0

    def tokens(
        self, prompt: int | None = None, uncached: int | None = None, output: int | None = None
    ) -> Tokens | None:
        """Return the tokens of a request of which this is given; None if nobody says how long prompt or answer is.

        Raises
        ------
        QuantityError
            If no request can have them, or no GPU can hold them.
        """
        prompt, output = self.prompt if prompt is None else prompt, self.output if output is None else output
        if prompt is None or output is None:
            return None
        uncached = self.uncached if uncached is None else uncached
        if uncached is None:
            uncached = 0 if self.takes_kv else prompt
        if uncached > prompt or (not uncached and not self.takes_kv):
            least = 0 if self.takes_kv else 1
            raise QuantityError(f"{uncached} uncached tokens of {prompt}; allowed are {least} to {prompt}")
        if not self.longest:
            raise QuantityError("no GPU has memory for KV beside its models and adapters; allowed are smaller ones")
        if prompt + output > self.longest:
            most = f"allowed are at most {self.longest} together, the longest that fits"
            raise QuantityError(f"{prompt} prompt and {output} output tokens of KV fit no GPU; {most}")
        if not prompt or not output:
            raise QuantityError(f"{prompt} prompt and {output} output tokens; allowed is at least 1 of each")
        return Tokens(prompt, uncached, output)

    def refuse_blocks(self, tokens: Tokens, blocks: tuple[int, ...] | None = None) -> None:
        """Refuse blocks of a prompt that it cannot have; None: those that the task says.

        Raises
        ------
        QuantityError
            If there are more than the prompt has, or something else says what is cached.
        """
        blocks = self.blocks if blocks is None else blocks
        if not (self.block and blocks):
            return
        if self.takes_kv:
            raise QuantityError("KV is moved to the request; allowed are blocks of prompts that are computed")
        most = -(-tokens.prompt // self.block)
        if len(blocks) > most:
            text = f"{len(blocks)} blocks of {self.block} tokens for a prompt of {tokens.prompt}"
            raise QuantityError(f"{text}; allowed are at most {most}")
        if tokens.uncached < tokens.prompt:
            text = f"{tokens.uncached} uncached tokens of {tokens.prompt} beside blocks, which nodes cache"
            raise QuantityError(f"{text}; allowed are blocks, or uncached with prefix_cache: none")


Forms = Mapping[str, Mapping[str, RequestForm]]
"""The form of every request, by workflow and task."""


def request_forms(document: ScenarioDocument, gpus: Sequence[GPU] = ()) -> Forms:
    """Return the forms of all requests; `gpus` has one of every sort, or is empty where all that is said shall fit.

    Raises
    ------
    FieldError
        For an unknown class, or one with an unknown model that a task names.
    """
    longest: dict[str, int] = {}
    forms: dict[str, dict[str, RequestForm]] = {}
    for workflow, section in document.workflows.items():
        forms[workflow] = {}
        for name, task in section.tasks.items():
            if task.stream is None:
                continue
            if task.stream not in longest:
                longest[task.stream] = _longest(document, task.stream, ("workflows", workflow, "tasks", name), gpus)
            forms[workflow][name] = RequestForm(
                task.prompt,
                task.uncached,
                task.output_tokens,
                any(edge.bytes == KV for edge in task.after.values()),
                longest[task.stream],
                any(name in branch.tasks for branch in section.branches),
                task.blocks,
                of.prefix_block if (of := document.streams[task.stream]).prefix_cache == "node" else 0,
            )
    return forms


def _longest(document: ScenarioDocument, name: str, where: Where, gpus: Sequence[GPU]) -> int:
    """Return the most tokens of KV of a request of a class that some GPU can hold."""
    if name not in document.streams:
        raise FieldError((*where, "stream"), f"unknown stream {quote(name)}; {allowed(name, document.streams)}")
    section = document.streams[name]
    refuse_unknown_models(document, section.models, ("streams", name))
    stream, weights = stream_class(name, section), {model: of.weights for model, of in document.models.items()}
    return max((longest_on(stream, stream.speed_on(gpu.kind), gpu, weights) for gpu in gpus), default=LARGEST)


def refuse_unknown_models(document: ScenarioDocument, models: tuple[str, ...], where: Where) -> None:
    """Refuse a model that the document does not list, on behalf of the section at `where`.

    Raises
    ------
    FieldError
        At the model.
    """
    for position, model in enumerate(models):
        if model not in document.models:
            problem = f"unknown model {quote(model)}; {allowed(model, document.models)}"
            raise FieldError((*where, "models", position), problem)


def read_blocks(text: str, known: dict[str, int]) -> tuple[int, ...]:
    """Return numbers of blocks, separated by spaces; equal ones are the same object, as `known` keeps them.

    Raises
    ------
    QuantityError
        If one is none.
    """
    found = []
    for word in text.split():
        number = known.get(word)
        if number is None:
            if not (word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS):
                problem = f"{quote(word)} is no number of a block"
                raise QuantityError(f"{problem}; allowed are whole numbers from 0, separated by spaces")
            number = known[word] = int(word)
        found.append(number)
    return tuple(found)


def read_count(text: str) -> int:
    """Return a number of tokens.

    Raises
    ------
    QuantityError
        If the text is none.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) <= MAX_TOKENS):
        raise QuantityError(f"{quote(text)} is no number of tokens; allowed is a whole number from 1 to {MAX_TOKENS}")
    return int(text)
