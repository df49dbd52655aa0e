"""The variables of the CP-SAT formulation, declared inside their time windows."""

from __future__ import annotations

from ortools.sat.python import cp_model

from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.orders import batch_times, led_by, memory_of, overlapping
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import Step, Surcharges
from truenorth.models.objective import Term, charges

Pair = tuple[int, int]
Place = tuple[int, int, int]


class CpSatVariables:
    """The decisions; needs are numbered as in `Choices`, letters as in the constraints.

    Attributes
    ----------
    assign
        (task, GPU): the task runs there (x_tg).
    start, end
        Per task, in microseconds (s_t, e_t).
    run
        (task, GPU): the task's interval there, present if x_tg; that of its batch, present if c_tg.
    carry
        (task, GPU): the task leads its batch there (c_tg); x_tg itself where no other task can lead it.
    join
        (leader, member): the second task runs in the batch of the first (j_ab).
    size
        (task, members): the task leads a batch of so many (k_an); only where it can lead others.
    length
        Per task that can lead others: how long its batch runs (p_a).
    working
        Per task that holds memory of its own: for how long (e_t - s_t).
    work
        (task, GPU): the interval in which the task holds memory of its own, present if x_tg.
    hit
        (before, after): a need follows another in the same residency (h_uv).
    miss
        (need, GPU): the need opens a residency by a load (m_ug).
    initial
        (need, GPU): the need opens an initial residency (i_ug).
    hold
        Per need: since when its memory is held for it (q_u).
    until
        Per need: up to when it holds it (r_u): the end of its task, or a later one where tasks overlap.
    span
        Per need: how long it holds it (r_u - q_u).
    load
        (need, GPU): the load's interval, present if m_ug.
    place
        (need, GPU, room): the residency sits in this room (y_ugk); x_tg itself where there is one room.
    piece
        (need, GPU, room): its interval [q_u, r_u), present if y_ugk.
    resident
        (model, GPU, room): the model is ever there (z_mgk); only without swaps.
    stay
        (model, GPU, room): its start, length and interval, from the load on as long as the GPU is there, present if
        z_mgk; only without swaps, where tasks hold memory or GPUs come and go.
    used
        (task, GPU): this task or one before it runs there (f_tg); only for interchangeable GPUs.
    completion
        Per job (C_j).
    term
        Per job: the term that its weight multiplies (T_j).
    worst
        The largest weighted term, if the objective is a maximum (W).
    surcharge
        Per job that can pay one: what it pays above the bound that the model was given (R_j).
    step
        Per step of the surcharges: the task's start lies on it (l_tk).
    """

    def __init__(
        self, model: cp_model.CpModel, choices: Choices, scaled: ScaledObjective, surcharges: Surcharges | None
    ) -> None:
        instance, tasks = choices.instance, range(choices.instance.n_tasks)
        self.assign = {(t, g): model.new_bool_var(f"assign[{t},{g}]") for t in tasks for g in choices.gpus[t]}
        self._declare_batches(model, choices)
        self._declare_runs(model, choices)
        self._declare_pieces(model, choices)
        self.miss = {
            (need, g): model.new_bool_var(f"miss[{need},{g}]")
            for need, (task, _) in enumerate(choices.needs)
            for g in choices.gpus[task]
        }
        self.place = {
            (need, g, room): model.new_bool_var(f"place[{need},{g},{room}]") if several else self.carry[task, g]
            for need, (task, wanted) in enumerate(choices.needs)
            for g in choices.gpus[task]
            for several in [len(choices.rooms_of(wanted, g)) > 1]
            for room in choices.rooms_of(wanted, g)
        }
        self._declare_costs(model, choices, scaled)
        self._declare_work(model, choices)
        self.hit = {(a, b): model.new_bool_var(f"hit[{a},{b}]") for a, b in choices.follows}
        self.initial = {(need, g): model.new_bool_var(f"initial[{need},{g}]") for need, g in choices.initial}
        self.load = {
            (need, g): model.new_optional_fixed_size_interval_var(
                self.hold[need], instance.load_time(choices.needs[need][1], g), present, f"load[{need},{g}]"
            )
            for (need, g), present in self.miss.items()
        }
        self.piece = {
            (need, g, room): model.new_optional_interval_var(
                self.hold[need], self.span[need], self.until[need], present, f"piece[{need},{g},{room}]"
            )
            for (need, g, room), present in self.place.items()
        }
        self._declare_stays(model, choices)
        self.used = {
            (task, g): model.new_bool_var(f"used[{task},{g}]")
            for group in choices.equal_gpus
            for g in group[:-1]
            for task in tasks
        }
        self.surcharge: dict[int, cp_model.IntVar] = {}
        self.step: dict[Step, cp_model.IntVar] = {}
        if surcharges is not None:
            paying = [job for job, own in enumerate(surcharges.steps) if own]
            self.surcharge = {job: model.new_int_var(0, surcharges.spare, f"surcharge[{job}]") for job in paying}
            self.step = {
                step: model.new_bool_var(f"{'late' if step.late else 'soon'}[{step.task},{step.time_us}]")
                for own in surcharges.steps
                for step in own
            }

    def _declare_batches(self, model: cp_model.CpModel, choices: Choices) -> None:
        """Declare who leads and joins; where nobody can lead a task, it leads wherever it is assigned."""
        members = {member for _, member in choices.joins}
        self.carry = {
            (task, g): model.new_bool_var(f"carry[{task},{g}]") if task in members else literal
            for (task, g), literal in self.assign.items()
        }
        self.size: dict[Pair, cp_model.IntVar] = {}
        self.length: dict[int, cp_model.IntVar] = {}
        for task, followers in led_by(choices.joins).items():
            most = choices.most_with(task, len(followers))
            # As long as the batch that it is in, its own or another's.
            longest = choices.most_with(task, choices.instance.n_tasks) if task in members else most
            times = [time for g in choices.gpus[task] for time in batch_times(choices.instance, task, g, longest)]
            self.size |= {(task, count): model.new_bool_var(f"size[{task},{count}]") for count in range(1, most + 1)}
            self.length[task] = model.new_int_var(min(times), max(times), f"length[{task}]")
        self.join = {(a, b): model.new_bool_var(f"join[{a},{b}]") for a, b in choices.joins}

    def _declare_runs(self, model: cp_model.CpModel, choices: Choices) -> None:
        """Declare starts, ends and intervals; an end is an expression where every GPU takes equally long.

        c_tg => e_t = s_t + p_tg;  of a task that others can join e_t = s_t + p_t.

        Notes
        -----
        Invariant: an interval ends at its start plus its length, whether the task runs there or not.
        Because: CP-SAT's rule *not last* (9.12 to 9.14) takes what is known of the end of an interval for a
            contradiction although the interval may be absent. Where that end is a variable that is bound only if the
            task runs there, it denies plans: of two successors on two kinds of GPU, say. Here it holds in any case.
        If wrong: unsound (`experiments.benchmarks.exact.not_last`, forks 103 and 110).
        """
        sociable = {task for pair in self.join for task in pair}
        windows, instance = choices.windows, choices.instance
        self.start: list[cp_model.IntVar] = []
        self.end: list[cp_model.LinearExprT] = []
        self.run: dict[Pair, cp_model.IntervalVar] = {}
        for task, gpus in enumerate(choices.gpus):
            times = [instance.run_time(task, g) for g in gpus]
            earliest = [int(windows.earliest_start_us[task, g]) for g in gpus]
            latest = [int(windows.latest_end_us[task, g]) for g in gpus]
            last = max(end - time for end, time in zip(latest, times, strict=True))
            start = model.new_int_var(min(earliest), last, f"start[{task}]")
            end: cp_model.LinearExprT = start + times[0]
            if len(set(times)) > 1 or task in sociable:
                first = min(begin + time for begin, time in zip(earliest, times, strict=True))
                end = model.new_int_var(first, max(latest), f"end[{task}]")
            length = self.length.get(task)
            if length is not None:
                model.add(end == start + length).with_name(f"end[{task}]")
            for g, time in zip(gpus, times, strict=True):
                name, present = f"run[{task},{g}]", self.carry[task, g]
                if length is not None:
                    self.run[task, g] = model.new_optional_interval_var(start, length, end, present, name)
                    continue
                self.run[task, g] = model.new_optional_fixed_size_interval_var(start, time, present, name)
                if isinstance(end, cp_model.IntVar):
                    model.add(end == start + time).with_name(f"end[{task},{g}]").only_enforce_if(present)
            self.start.append(start)
            self.end.append(end)

    def _declare_pieces(self, model: cp_model.CpModel, choices: Choices) -> None:
        """Declare since when each need holds its memory, until when, and for how long."""
        last, needs = int(choices.windows.latest_end_us.max()), range(len(choices.needs))
        if overlapping(choices.instance):
            # A residency serves tasks beside each other, so a piece may outlast its task, or last for no time.
            self.until: list[cp_model.LinearExprT] = [model.new_int_var(0, last, f"until[{need}]") for need in needs]
            self.hold = [model.new_int_var(0, last, f"hold[{need}]") for need in needs]
            self.span = [model.new_int_var(0, last, f"span[{need}]") for need in needs]
            return
        self.until = [self.end[task] for task, _ in choices.needs]
        self.hold, self.span = [], []
        for need, (task, _) in enumerate(choices.needs):
            shortest = min(choices.instance.run_time(task, g) for g in choices.gpus[task])
            latest_end = max(int(choices.windows.latest_end_us[task, g]) for g in choices.gpus[task])
            self.hold.append(model.new_int_var(0, latest_end - shortest, f"hold[{need}]"))
            self.span.append(model.new_int_var(shortest, latest_end, f"span[{need}]"))

    def _declare_costs(self, model: cp_model.CpModel, choices: Choices, scaled: ScaledObjective) -> None:
        """Declare completions, terms and the largest weighted term; expressions wherever no variable is needed."""
        instance, windows = choices.instance, choices.windows
        least = scaled.terms(instance, windows.completion_lower_us)
        most = scaled.terms(instance, windows.completion_upper_us)
        self.completion: list[cp_model.LinearExprT] = []
        self.term: list[cp_model.LinearExprT] = []
        for job, due in enumerate(charges(scaled.objective, instance).due_us.tolist()):
            sinks = [task for task in instance.tasks_of(job) if not any(True for _ in instance.task_outputs(task))]
            first, last = int(windows.completion_lower_us[job]), int(windows.completion_upper_us[job])
            done = self.end[sinks[0]] if len(sinks) == 1 else model.new_int_var(first, last, f"completion[{job}]")
            self.completion.append(done)
            if scaled.term in (Term.COMPLETION, Term.LATENCY):  # nothing completes before these due times
                self.term.append(done - due)
            elif scaled.weights[job] == 0:
                self.term.append(0)
            elif scaled.term is Term.TARDINESS:
                self.term.append(model.new_int_var(least[job], most[job], f"tardiness[{job}]"))
            else:
                self.term.append(model.new_bool_var(f"late[{job}]"))
        self.worst: cp_model.IntVar | None = None
        if not scaled.objective.is_sum:
            self.worst = model.new_int_var(scaled.combine(least), scaled.combine(most), "worst")

    def _declare_work(self, model: cp_model.CpModel, choices: Choices) -> None:
        """Declare for how long tasks hold memory of their own, and when."""
        last = int(choices.windows.latest_end_us.max())
        holding = [task for task in range(choices.instance.n_tasks) if memory_of(choices.instance, task)]
        self.working = {task: model.new_int_var(1, last, f"working[{task}]") for task in holding}
        for task, lasts in self.working.items():
            model.add(lasts + self.start[task] == self.end[task]).with_name(f"working[{task}]")
        self.work = {
            (task, g): model.new_optional_interval_var(
                self.start[task], lasts, self.end[task], self.assign[task, g], f"work[{task},{g}]"
            )
            for task, lasts in self.working.items()
            for g in choices.gpus[task]
        }

    def _declare_stays(self, model: cp_model.CpModel, choices: Choices) -> None:
        """Declare which models are ever where and, where tasks hold memory beside them or GPUs go, from when on."""
        self.resident: dict[Place, cp_model.IntVar] = {}
        self.stay: dict[Place, tuple[cp_model.IntVar, cp_model.IntVar, cp_model.IntervalVar]] = {}
        if not choices.instance.restrictions.no_swaps:
            return
        places = sorted({(choices.needs[need][1], g, room) for need, g, room in self.place})
        self.resident = {(m, g, room): model.new_bool_var(f"resident[{m},{g},{room}]") for m, g, room in places}
        if choices.instance.always_available and not choices.instance.template_memory.any():
            return
        for place, literal in self.resident.items():
            name, last = ",".join(map(str, place)), choices.last_us(place[1])
            since = model.new_int_var(0, last, f"since[{name}]")
            lasts = model.new_int_var(0, last, f"lasts[{name}]")
            model.add(since + lasts == last).with_name(f"stay[{name}]")
            interval = model.new_optional_interval_var(since, lasts, last, literal, f"stay[{name}]")
            self.stay[place] = since, lasts, interval
