"""What can be asked of a scenario: one frozen record per verb, answered within a budget.

A field stands here once, with its default and its help. From it follow the keyword of the Python call, the option of
the command, the setting of a sweep, the key of a cell, and the command that repeats an answer. Whoever answers is
imported when something is asked, so that the command's help waits for no solver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

from truenorth.planner.answers.options import (
    DEVICE,
    DEVICES_ON_RAY,
    PATIENCE,
    POLICIES,
    RAY,
    RUNNER,
    SAMPLES,
    SEED,
    TIME_LIMIT,
    VIRTUAL,
    WARMUP,
    WORKERS,
    OptionKind,
    asked,
    name_of,
    options_of,
    say,
)

if TYPE_CHECKING:
    from truenorth.executor.devices.run import LiveSettings
    from truenorth.executor.devices.runner import MakeRunner
    from truenorth.models.scenario import Scenario
    from truenorth.models.slo import ServiceLevels
    from truenorth.models.timeline import Timeline
    from truenorth.planner.answers.bound import Bound
    from truenorth.planner.answers.compare import Comparison
    from truenorth.planner.answers.plan import Plan
    from truenorth.planner.answers.profile import Profile
    from truenorth.planner.answers.replay import Replayed
    from truenorth.planner.answers.servers.answer import ServersAnswer
    from truenorth.planner.answers.servers.scheduled import ScheduleAnswer
    from truenorth.planner.answers.simulate import Simulation
    from truenorth.planner.answers.trial import Trial
    from truenorth.planner.answers.uncertain.planning import UncertainPlan
    from truenorth.planner.answers.uncertain.told import Told
    from truenorth.planner.inputs.samples import Samples
    from truenorth.solvers.budget import Budget
    from truenorth.solvers.farm import Farm
    from truenorth.solvers.incumbents import Progress

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Question(Generic[Answer]):
    """What is asked of a scenario: plain, and small enough to be sent to another process."""

    verb: ClassVar[str]
    searches: ClassVar[bool] = True
    """Whether answering takes the kernels of the solvers."""

    def answer(self, scenario: Scenario, budget: Budget) -> Answer:
        """Return the answer, found within a budget."""
        raise NotImplementedError

    def ask(self, scenario: Scenario) -> Answer:
        """Return the answer within the question's own limits; kernels that it needs are compiled before they count.

        An interrupt ends the search, and what was found is returned, marked as `interrupted`; a second one raises.
        """
        from truenorth.planner.answers.pool import farm_at, refuse_absent
        from truenorth.solvers.budget import interruptible, own_interrupts
        from truenorth.solvers.first_use import compile_once

        ray = getattr(self, "ray", None)
        refuse_absent(ray)
        if self.searches:
            compile_once(scenario.instance, method=getattr(self, "method", None))
        with farm_at(ray) as farm:
            if getattr(self, "stop", None) is not None:  # whoever stops it knows that it was stopped
                return self.answer(scenario, self.budget(farm))
            with interruptible(*own_interrupts()) as stop:
                made = self.answer(scenario, replace(self.budget(farm), stop=stop))
        return replace(made, interrupted=True) if stop.is_set() else made  # type: ignore[type-var]

    def budget(self, farm: Farm | None = None) -> Budget:
        """Return what this question may take by itself, from now on."""
        from truenorth.solvers.budget import Budget

        said = {each.name: getattr(self, each.name, None) for each in fields(Budget) if each.init}
        return Budget(**({name: value for name, value in said.items() if value is not None} | {"farm": farm}))

    def alone(self) -> Self:
        """Return the question that nobody watches or stops, as it is sent to other processes."""
        return replace(self, **{each.name: None for each in fields(self) if each.name in ("watch", "stop")})

    def typed(self) -> list[str]:
        """Return the options of the command that repeat the question."""
        words: list[str] = []
        for each, found in options_of(self):
            value = getattr(self, each.name)
            if value is None or value is False or (not found.repeated and value == each.default):
                continue
            name = f"--{name_of(each).replace('_', '-')}"
            words += [name] if value is True else (word for said in say(value, found.kind) for word in (name, said))
        return words

    def key(self) -> list[object]:
        """Return what the answer depends on besides the scenario, as JSON data."""
        differing = ((each, found) for each, found in options_of(self) if found.in_sweeps)
        told = {name_of(each): (getattr(self, each.name), found.kind) for each, found in differing}
        return [self.verb, {name: value if value is None else say(value, kind) for name, (value, kind) in told.items()}]


@dataclass(frozen=True)
class SearchQuestion(Question[Answer]):
    """How a plan is looked for."""

    verb: ClassVar[str] = "plan"
    _: KW_ONLY
    time_limit_s: float = asked(60.0, TIME_LIMIT)
    method: str = asked("auto", "How to search.", OptionKind.CHOICE, choices=("auto", "cp-sat", "milp", "search"))
    workers: int = asked(2, WORKERS)
    seed: int = asked(0, SEED)
    iterations: int | None = asked(None, "Steps of local search, for repeatable runs.", OptionKind.WHOLE, least=1)
    ray: str | None = asked(None, RAY)
    watch: Callable[[Progress], None] | None = None
    stop: threading.Event | None = None


@dataclass(frozen=True)
class PlanQuestion(SearchQuestion["Plan"]):
    """Plan a scenario as well as the time allows.

    Parameters
    ----------
    time_limit_s
        Wall-clock seconds for plan and bound together; the first plan is made even if it takes longer.
    method, workers, seed, iterations
        As in `solvers.budget.Budget`.
    ray
        Address of a Ray cluster whose workers look for plans as well.
    watch
        Called whenever plan or bound improve.
    stop
        Set it to end early with the best plan so far.
    hint
        A feasible timeline; the plan is never worse.
    starts
        Timelines of online policies that were simulated before; None: simulate some first.

    Raises
    ------
    QuestionError
        If there is no such cluster, or no such method.
    """

    _: KW_ONLY
    hint: Timeline | None = None
    starts: Sequence[Timeline] | None = None

    def answer(self, scenario: Scenario, budget: Budget) -> Plan:
        """Return the plan."""
        from truenorth.planner.answers.plan import plan_within

        return plan_within(scenario, budget, hint=self.hint, starts=self.starts)


@dataclass(frozen=True)
class UncertainPlanQuestion(SearchQuestion["UncertainPlan"]):
    """Plan a scenario for run times that are estimates.

    Parameters
    ----------
    told
        What is known of the run times.
    plan_for
        The median, the 90 % quantile, or the best mean over samples.
    samples
        How many run-time vectors are drawn, to choose by or to tell what the plan is worth.
    time_limit_s, method, workers, seed, iterations, ray, watch, stop
        As those of `truenorth.plan`; the time is divided among the candidates.
    """

    told: Told
    plan_for: str = "p50"
    _: KW_ONLY
    samples: int = 8

    def answer(self, scenario: Scenario, budget: Budget) -> UncertainPlan:
        """Return the plan, and what it is worth."""
        from truenorth.planner.answers.uncertain.planning import plan_uncertain_within

        return plan_uncertain_within(self, scenario, budget)


@dataclass(frozen=True)
class BoundQuestion(Question["Bound"]):
    """Bound a scenario as well as the time allows.

    Parameters
    ----------
    schedule
        A timeline file whose regret is to be taken apart; it has half of the time, and the plan that bounding finds.
    ray
        Address of a Ray cluster whose workers price sections of a long trace.
    watch
        Called whenever the bound improves.
    stop
        Set it to end early with the best bound so far.

    Raises
    ------
    InputError
        If the schedule cannot be read, breaks a rule, or did not happen in the given run times.
    QuestionError
        If there is no such cluster.
    """

    verb: ClassVar[str] = "bound"
    _: KW_ONLY
    time_limit_s: float = asked(60.0, TIME_LIMIT)
    schedule: Path | None = asked(
        None,
        "Also say what this plan or timeline loses, and to what.",
        OptionKind.FILE,
        metavar="TIMELINE",
        in_sweeps=False,
    )
    workers: int = asked(2, WORKERS)
    seed: int = asked(0, SEED)
    ray: str | None = asked(None, RAY)
    watch: Callable[[Progress], None] | None = None
    stop: threading.Event | None = None

    def answer(self, scenario: Scenario, budget: Budget) -> Bound:
        """Return the bound."""
        from truenorth.planner.answers.bound import bound_within

        return bound_within(scenario, budget, self.schedule)


@dataclass(frozen=True)
class SimulateQuestion(Question["Simulation"]):
    """Run a policy on a scenario in simulated time; the fields are the keywords of `truenorth.simulate`."""

    verb: ClassVar[str] = "simulate"
    searches: ClassVar[bool] = False
    policy: str = asked(
        MISSING, "A policy with parameters, module:Class, or a plan or timeline file.", OptionKind.POLICY
    )
    _: KW_ONLY
    noise: str | None = asked(
        None, "Seeded noise on runs and loads, or error of what is told.", OptionKind.NOISE, metavar="SPEC"
    )
    warmup: Fraction = asked(Fraction(0), WARMUP)
    seed: int = asked(0, SEED)

    def answer(self, scenario: Scenario, budget: Budget) -> Simulation:
        """Return what happened; a simulation has no time limit."""
        from truenorth.planner.answers.simulate import simulate

        stop = budget.stop.is_set
        return simulate(scenario, self.policy, seed=self.seed, noise=self.noise, warmup=self.warmup, stop=stop)


@dataclass(frozen=True)
class CompareQuestion(Question["Comparison"]):
    """Simulate the policies, then plan for the time limit, starting from the best of them.

    A policy of the user's whose timeline breaks a rule has a row that says so. A tenth of the time, at most 5 s, goes
    to the regret of each policy that is taken apart, and together no more than half of it.

    Parameters
    ----------
    policies
        As `truenorth.simulate` takes them; None: those of `planner.answers.compare.DEFAULT_POLICIES` (`ahead` up to
        `LONGEST_LISTS`), `OFFLINE_POLICIES` if there is noise and `BATCHING_POLICIES` if there are batch classes, of
        those the ones that can serve the window; for requests of streams `STREAM_POLICIES`, on
        unlike nodes `WEIGHING` besides.
    noise
        How wrong the run times are that policies are told, as ``told=published:1``; plan and bound know the true ones.
    time_limit_s
        Seconds for plan, bound and taking policies apart; simulations, which come before, are not counted.
    warmup
        Fraction of the earliest jobs that the metrics leave out; objective, ratio and gap cover every job.
    regret
        Policies, as they are named among the contenders, that are taken apart; None: the best online one and Compass.
    ray
        Address of a Ray cluster whose workers look for plans as well.

    Raises
    ------
    QuestionError
        If a policy that is to be taken apart is no contender, or ran on an instance of its own, or if there is no such
        cluster.
    NoiseError
        If the noise changes what happens: plan and bound would be those of another window.
    PolicyError
        If a policy that was named cannot serve the window.
    """

    verb: ClassVar[str] = "compare"
    policies: Sequence[str] | None = asked(None, POLICIES)
    _: KW_ONLY
    noise: str | None = asked(
        None, "How wrong the run times are that policies are told.", OptionKind.NOISE, metavar="SPEC"
    )
    time_limit_s: float = asked(
        60.0,
        "Seconds for plan, bound and taking policies apart, per replication; simulations are not counted.",
        OptionKind.SECONDS,
        name="time_limit",
    )
    warmup: Fraction = asked(Fraction(0), WARMUP)
    regret: Sequence[str] | None = asked(
        None, "Policies to take apart, separated by commas (default: the best, and compass).", OptionKind.NAMES
    )
    ray: str | None = asked(
        None, "Search on this Ray cluster, too; replications on it alone.", metavar="ADDRESS", in_sweeps=False
    )
    workers: int = asked(2, WORKERS)
    seed: int = asked(0, SEED)
    watch: Callable[[Progress], None] | None = None
    stop: threading.Event | None = None

    def answer(self, scenario: Scenario, budget: Budget) -> Comparison:
        """Return the comparison."""
        from truenorth.planner.answers.compare import compare_within

        return compare_within(self, scenario, budget)


@dataclass(frozen=True)
class SizesQuestion(Question[Answer]):
    """Which size meets service levels, and who may answer that.

    Parameters
    ----------
    slo
        Levels that must all hold. None: the scenario's own.
    policies
        Online policies to simulate beside it; None: `DEFAULT_POLICIES` of `planner.answers.servers.by_policy`, with
        batch classes `BATCHING_POLICIES` too, the quickest if the window is too long to plan, gateways for streams.
    most
        The largest number of servers, per group, that is looked at.
    spare
        The levels must still be met with any so many servers gone.
    noise
        Under which policies are simulated, as `truenorth.simulate` takes it, but for ``estimates=FILE``.
    rate
        So many times as many requests per second as the scenario says, the same ones: each release is divided by it.
    time_limit_s
        For everything together.
    watch
        Called with a few words whenever the work turns to something else.
    stop
        Set it to end early with what is known.

    Raises
    ------
    QuestionError, InputError, NoiseError, PolicyError
        If there is no level, a policy is unknown, or the scenario cannot be asked about other sizes.
    """

    verb: ClassVar[str] = "servers"
    slo: ServiceLevels | None = asked(
        None,
        "Service level, such as 'p99 slowdown <= 2' (default: the scenario's); several must all hold.",
        OptionKind.LEVELS,
    )
    _: KW_ONLY
    policies: Sequence[str] | None = asked(None, POLICIES)
    most: int | None = asked(
        None, "Most servers, per group, to look at.", OptionKind.WHOLE, name="max", least=1, most=100_000
    )
    spare: int = asked(
        0,
        "The level must still be met with any so many servers gone.",
        OptionKind.WHOLE,
        least=0,
        most=20,
        repeated=False,
    )
    noise: str | None = asked(
        None,
        "Policies run under this noise, such as told=mean; floor and plan do not.",
        OptionKind.NOISE,
        metavar="SPEC",
    )
    rate: Fraction = asked(
        Fraction(1),
        "So many times as many requests per second, the same ones.",
        OptionKind.FACTOR,
        metavar="FACTOR",
        repeated=False,
    )
    time_limit_s: float = asked(300.0, TIME_LIMIT)
    workers: int = asked(2, WORKERS)
    seed: int = asked(0, SEED)
    watch: Callable[[str], None] | None = None
    stop: threading.Event | None = None


@dataclass(frozen=True)
class ServersQuestion(SizesQuestion["ServersAnswer"]):
    """Find the least number of servers that meets the service levels, or of priced groups the cheapest mix."""

    def answer(self, scenario: Scenario, budget: Budget) -> ServersAnswer:
        """Return the least size that is known to do."""
        from truenorth.planner.answers.servers.answer import servers_within

        return servers_within(self, scenario, budget)


@dataclass(frozen=True)
class ScheduleQuestion(SizesQuestion["ScheduleAnswer"]):
    """Find the cheapest schedule of counts that meets the levels, for plans and per policy.

    Parameters
    ----------
    by_us
        Length of the intervals in microseconds.
    folder
        What is found out about schedules is kept there, and counts when the same is asked again; None: it is not kept.
    """

    _: KW_ONLY
    by_us: int = asked(MISSING, "Length of the intervals.", OptionKind.TIME, name="by")
    folder: Path | None = None

    def answer(self, scenario: Scenario, budget: Budget) -> ScheduleAnswer:
        """Return the cheapest schedule that is known to do."""
        from truenorth.planner.answers.servers.schedule import schedule_within

        return schedule_within(self, scenario, budget)


@dataclass(frozen=True)
class ProfileQuestion(Question["Profile"]):
    """Measure run times, loads and transfers, on this machine or a Ray cluster's.

    Parameters
    ----------
    folder
        Where every round is kept as it ends; None: nowhere.
    watch
        Told how many rounds are done, those of the warm-up included.
    stop
        Set it to end early with the rounds that have ended.
    """

    device: str = asked(MISSING, "What is measured.", OptionKind.CHOICE, choices=DEVICE.choices)
    _: KW_ONLY
    runner: str | None = asked(None, RUNNER)
    rounds: int = asked(10, "How often every workflow is run, after the warm-up.", OptionKind.WHOLE, least=1)
    beside: int = asked(0, "How many more GPUs do the same meanwhile.", OptionKind.WHOLE, least=0)
    memory: bool = asked(False, "Let tasks hold, as `memory`, what they take beside the weights.", OptionKind.FLAG)
    ray: str | None = asked(None, DEVICES_ON_RAY)
    folder: Path | None = None
    watch: Callable[[int], None] = lambda done: None
    stop: threading.Event | None = None

    def ask(self, scenario: Scenario) -> Profile:
        """Return what was measured."""
        name, make = _runner(self.runner, scenario)
        from truenorth.planner.answers.profile import profile

        return profile(
            scenario,
            make,
            device=self.device,
            runner_name=name,
            rounds=self.rounds,
            beside=self.beside,
            with_memory=self.memory,
            folder=self.folder,
            watch=self.watch,
            stop=(self.stop or threading.Event()).is_set,
            ray=self.ray,
        )


@dataclass(frozen=True)
class ReplayQuestion(Question["Replayed"]):
    """Carry out a plan or an online policy on devices, in real time.

    Parameters
    ----------
    policy
        A plan or timeline file, or a policy with its parameters.
    """

    policy: str | Path = ""
    _: KW_ONLY
    device: str = asked("cpu", DEVICE)
    runner: str | None = asked(None, RUNNER)
    virtual: str | None = asked(None, VIRTUAL)
    ray: str | None = asked(None, DEVICES_ON_RAY)
    limit_s: float = asked(30.0, PATIENCE)
    samples: Path | None = asked(None, SAMPLES)
    check_outputs: bool = asked(False, "Afterwards run every task alone and compare its output.", OptionKind.FLAG)
    seed: int = asked(0, SEED)

    def ask(self, scenario: Scenario) -> Replayed:
        """Return what was predicted, and what devices made of it."""
        name, make = _runner(self.runner, scenario)
        from truenorth.planner.answers.replay import replay_on_devices

        made = replay_on_devices(
            scenario,
            self.policy,
            make,
            _settings(self),
            runner_name=name,
            seed=self.seed,
            check_outputs=self.check_outputs,
            samples=_samples(self.samples),
        )
        return replace(made, asked=replace(self, runner=name))


@dataclass(frozen=True)
class TrialQuestion(Question["Trial"]):
    """Run plans and policies on the same devices, again and again in random order.

    Parameters
    ----------
    folder
        Where every run is kept as it ends; None: nowhere.
    watch
        Told how many runs are done.
    stop
        Set it to end early with the runs that have ended.
    """

    policies: Sequence[str] = asked(
        ("plan", "compass", "srpt"),
        "Contenders, separated by commas: plan, policies, plan files; the first is compared to.",
        OptionKind.NAMES,
    )
    _: KW_ONLY
    repeats: int = asked(5, "How often all of them run.", OptionKind.WHOLE, least=1)
    device: str = asked("cpu", DEVICE)
    runner: str | None = asked(None, RUNNER)
    virtual: str | None = asked(None, VIRTUAL)
    ray: str | None = asked(None, DEVICES_ON_RAY)
    limit_s: float = asked(30.0, PATIENCE)
    samples: Path | None = asked(None, SAMPLES)
    count_faults: bool = asked(False, "Let runs with faults count in the means, too.", OptionKind.FLAG)
    time_limit_s: float = asked(60.0, "Seconds for making the plan.", OptionKind.SECONDS, name="time_limit")
    seed: int = asked(0, SEED)
    folder: Path | None = None
    watch: Callable[[int], None] = lambda done: None
    stop: threading.Event | None = None

    def ask(self, scenario: Scenario) -> Trial:
        """Return what devices made of all of them."""
        name, make = _runner(self.runner, scenario)
        from truenorth.planner.answers.trial import trial

        made = trial(
            scenario,
            self.policies,
            make,
            _settings(self),
            runner_name=name,
            repeats=self.repeats,
            time_limit_s=self.time_limit_s,
            samples=_samples(self.samples),
            count_faults=self.count_faults,
            seed=self.seed,
            folder=self.folder,
            watch=self.watch,
            stop=self.stop,
        )
        return replace(made, asked=replace(self.alone(), runner=name))


def _runner(named: str | None, scenario: Scenario) -> tuple[str, MakeRunner]:
    """Return who computes, and what makes it."""
    from truenorth.models.errors import require_extra

    require_extra("devices")
    from truenorth.executor.runners.factory import default_runner, runner_named

    name = named or default_runner(scenario.instance)
    return name, runner_named(name)


def _settings(asked: ReplayQuestion | TrialQuestion) -> LiveSettings:
    from truenorth.executor.devices.run import LiveSettings

    return LiveSettings(asked.device, asked.virtual, asked.limit_s, ray=asked.ray)  # type: ignore[arg-type]


def _samples(path: Path | None) -> Samples | None:
    from truenorth.planner.inputs.samples import read_samples

    return None if path is None else read_samples(path)
