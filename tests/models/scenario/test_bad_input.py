# ruff: noqa: E501 (a message is one line)
"""Bad scenario files: each is refused with exactly one line that names file, line, field and what is allowed."""

from pathlib import Path

import pytest

from tests.models.scenario.small import GPU, JOBS, SMALL, changed, loaded, refused
from truenorth.models.scenario import InputError, load_scenario, scenario_from

END = "objective: mean_latency"
TIME = "no time; allowed is a number with one of us, ms, s, min, h"
SIZE = "no size; allowed is a number with one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
BANDWIDTHS = "B/s, KB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, TiB/s, bit/s, Kbit/s, Mbit/s, Gbit/s, Tbit/s"
TOP = "name, cluster, models, workflows, workload, batches, streams, objective, slo, options, restrictions, rounded_up"
TASK = (
    "models, runtime, output, after, input, batch, share, memory, stream, adapter, prompt, uncached, output_tokens, "
    "blocks, with, first_token, gpus, across, weights, modes"
)
OPT = "{models: [opt], runtime: 560 ms, output: 2 KB}"
SECTIONS = [
    (
        "servers: 2",
        "serverz: 2",
        "3: cluster.serverz: unknown key, did you mean 'servers'? allowed are servers, gpus_per_server, engines, gpu, groups, "
        "network, away, places",
    ),
    ("servers: 2", "servers:", "2: cluster: has none of servers, groups; allowed is exactly one of servers, groups"),
    ("servers: 2", "groups: []", "3: cluster.groups: is empty; allowed is at least one group"),
    (
        "servers: 2",
        "servers: 0",
        "3: cluster.servers: '0' is no such number; allowed is a whole number from 1 to 100000",
    ),
    (
        "servers: 2",
        "servers: 1e12",
        "3: cluster.servers: '1e12' is no such number; allowed is a whole number from 1 to 100000",
    ),
    (
        "servers: 2",
        "servers: '2'",
        "3: cluster.servers: '2' is no such number; allowed is a whole number from 1 to 100000",
    ),
    (
        "servers: 2",
        "servers: 2.0",
        "3: cluster.servers: '2.0' is no such number; allowed is a whole number from 1 to 100000",
    ),
    (
        "servers: 2",
        "servers: 400\n  gpus_per_server: 251",
        "3: cluster.servers: gives too many GPUs; allowed are 100000",
    ),
    (
        "  gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}\n",
        "",
        "2: cluster: key 'gpu' is missing; allowed is servers with gpu, or groups",
    ),
    (
        "servers: 2",
        "groups: [{count: 1, gpu: {}}]",
        "3: cluster.groups[0].gpu: key 'kind' is missing; allowed are the keys kind, memory, slots, load_bandwidth, load_overhead",
    ),
    (
        "  network: {bandwidth: 10 GB/s, latency: 2 us}\n",
        "",
        "2: cluster: key 'network' is missing; allowed is a cluster of several GPUs with a network",
    ),
    (
        "opt: {weights: 6 GB}",
        "opt: 6 GB",
        "7: models.opt: the value '6 GB' stands here; allowed is a mapping with keys weights",
    ),
    ("opt: {weights: 6 GB}", "opt: {}", "7: models.opt: key 'weights' is missing; allowed are the keys weights"),
    (
        "opt: {weights: 6 GB}",
        "opt: {weights: 6 GB}\n  opt: {weights: 6 GB}",
        "8: opt: duplicate key; it already stands in line 7",
    ),
    (
        "models: [opt]",
        "models: opt",
        "12: workflows.qa.tasks.opt.models: the value 'opt' stands here; allowed is a list",
    ),
    (
        "models: [opt]",
        "model: [opt]",
        f"12: workflows.qa.tasks.opt.model: unknown key, did you mean 'models'? allowed are {TASK}",
    ),
    (
        "release: 0 ms, ",
        "",
        "17: workload.jobs[1]: key 'release' is missing; allowed are the keys release, workflow, deadline, weight, ingress, path, priority, tokens, delay, blocks, ideal, line, label",
    ),
    (END, "objektive: x", f"18: objektive: unknown key, did you mean 'objective'? allowed are {TOP}"),
    ("name: small", "name: [a]", "1: name: a list stands here; allowed is a name of 1 to 200 printable characters"),
    ("name: small", "<<: {a: b}", f"1: <<: unknown key, allowed are {TOP}"),
    (
        SMALL[SMALL.index("workflows") : SMALL.index("workload")],
        "workflows: {}\n",
        "9: workflows: is empty; allowed is at least one workflow",
    ),
    (JOBS, "  {}\n", "14: workload: has none of poisson, trace, jobs; allowed is exactly one of poisson, trace, jobs"),
    (
        JOBS,
        JOBS + "  trace: {file: a.csv}\n",
        "14: workload: has trace and jobs; allowed is exactly one of poisson, trace, jobs",
    ),
    (JOBS, "  jobs: []\n", "15: workload.jobs: is empty; allowed is at least one job"),
    (GPU, "kind: T4", "4: cluster.gpu: has none of memory, slots; allowed is exactly one of memory, slots"),
    (GPU, GPU + ", slots: [1 GB]", "4: cluster.gpu: has memory and slots; allowed is exactly one of memory, slots"),
    (GPU, "kind: T4, slots: []", "4: cluster.gpu.slots: is empty; allowed is at least one slot"),
    (GPU, "kind: '*', memory: 14 GB", "4: cluster.gpu.kind: '*' is no kind of GPU; allowed is a name such as T4"),
]
QUANTITIES = [
    ("14 GB", "14 Gb", f"4: cluster.gpu.memory: '14 Gb' is {SIZE}"),
    ("14 GB", "14", f"4: cluster.gpu.memory: '14' is {SIZE}"),
    ("14 GB", "nan GB", f"4: cluster.gpu.memory: 'nan GB' is {SIZE}"),
    ("14 GB", "0 GB", "4: cluster.gpu.memory: '0 GB' is out of range; allowed is 1 B to 1e+16 B"),
    ("14 GB", "10001 TB", "4: cluster.gpu.memory: '10001 TB' is out of range; allowed is 1 B to 1e+16 B"),
    (
        GPU,
        "kind: T4, slots: [6000 TB, 6000 TB]",
        "4: cluster.gpu: the slots add up to more than 10000000000000000 B; allowed is less",
    ),
    (
        "load_bandwidth: 10 GB/s",
        "load_bandwidth: 10 GB",
        f"4: cluster.gpu.load_bandwidth: '10 GB' is no bandwidth; allowed is a number with one of {BANDWIDTHS}",
    ),
    (
        "load_bandwidth: 10 GB/s",
        "load_bandwidth: 0 GB/s",
        "4: cluster.gpu.load_bandwidth: '0 GB/s' is out of range; allowed is 0.125 bytes/s to 1e+18 bytes/s",
    ),
    ("560 ms", "560", f"12: workflows.qa.tasks.opt.runtime: '560' is {TIME}"),
    ("560 ms", "-560 ms", "12: workflows.qa.tasks.opt.runtime: '-560 ms' is out of range; allowed is 1 us to 1e+15 us"),
    ("560 ms", "0 ms", "12: workflows.qa.tasks.opt.runtime: '0 ms' is out of range; allowed is 1 us to 1e+15 us"),
    ("560 ms", "0.4 us", "12: workflows.qa.tasks.opt.runtime: '0.4 us' is out of range; allowed is 1 us to 1e+15 us"),
    ("560 ms", ".nan", f"12: workflows.qa.tasks.opt.runtime: '.nan' is {TIME}"),
    ("560 ms", "inf s", f"12: workflows.qa.tasks.opt.runtime: 'inf s' is {TIME}"),
    (
        "560 ms",
        "1000000001 s",
        "12: workflows.qa.tasks.opt.runtime: '1000000001 s' is out of range; allowed is 1 us to 1e+15 us",
    ),
    ("560 ms", "1e999 s", "12: workflows.qa.tasks.opt.runtime: '1e999 s' is out of range; allowed is 1 us to 1e+15 us"),
    ("560 ms", "{}", "12: workflows.qa.tasks.opt.runtime: is empty; allowed is at least one kind"),
    (
        "560 ms",
        "[1 s]",
        "12: workflows.qa.tasks.opt.runtime: a list stands here; allowed is a time, a number with one of us, ms, s, min, h",
    ),
    (
        "{T4: 27 ms}",
        "{T4: 27 ms,\n A10: 0 s}",
        "14: workflows.qa.tasks.nli.runtime.A10: '0 s' is out of range; allowed is 1 us to 1e+15 us",
    ),
    (
        "560 ms",
        "1" * 61 + " ms",
        f"12: workflows.qa.tasks.opt.runtime: '{'1' * 60}...' is too long; allowed is a time, a number with one of us, ms, s, min, h of at most 60 characters",
    ),
    (
        "release: 0 ms",
        "release: -1 ms",
        "17: workload.jobs[1].release: '-1 ms' is out of range; allowed is 0 us to 1e+15 us",
    ),
    (
        "weight: 2.5",
        "weight: -2",
        "16: workload.jobs[0].weight: '-2' is no such number; allowed is 0, or a number from 1e-9 to 1e9",
    ),
    (
        "weight: 2.5",
        "weight: 1e300",
        "16: workload.jobs[0].weight: '1e300' is no such number; allowed is 0, or a number from 1e-9 to 1e9",
    ),
    (
        "weight: 2.5",
        "weight: '2.5'",
        "16: workload.jobs[0].weight: text '2.5' stands here; allowed is a plain number without quotes",
    ),
    (
        END,
        "options: {overlap_loads: yes}",
        "18: options.overlap_loads: 'yes' is no truth value; allowed are true, false",
    ),
    (
        END,
        "objective: mean_latenzy",
        "18: objective: unknown objective 'mean_latenzy'; did you mean 'mean_latency'? allowed are mean_latency, mean_slowdown, weighted_latency, makespan, weighted_tardiness, late_jobs, max_slowdown",
    ),
    (END, "slo: p99 latency <= 5", f"18: slo: '5' is {TIME}"),
    (END, "slo: []", "18: slo: there is no service level; allowed is one, or a list of at least one"),
    (
        END,
        "slo: [no late jobs, p95 latency of qaa <= 1 s]",
        "18: slo: unknown workflow 'qaa'; did you mean 'qa'? allowed are qa",
    ),
    (
        JOBS,
        "  poisson: {rate: 2, jobs: 5}\n",
        "15: workload.poisson.rate: '2' is no rate; allowed is a number with one of /s, /min, /h",
    ),
    (
        JOBS,
        "  poisson: {rate: 0 /s, jobs: 5}\n",
        "15: workload.poisson.rate: '0 /s' is out of range; allowed is 1e-09 /s to 1e+09 /s",
    ),
    (
        JOBS,
        "  poisson: {rate: 2 /s, jobs: 1e15}\n",
        "15: workload.poisson.jobs: '1e15' is no such number; allowed is a whole number from 1 to 1000000",
    ),
    (
        JOBS,
        "  poisson: {rate: 2 /s, jobs: 5, seed: -1}\n",
        "15: workload.poisson.seed: '-1' is no such number; allowed is a whole number from 0 to 9223372036854775807",
    ),
    (
        JOBS,
        "  poisson: {rate: 0.000000001 /s, jobs: 9}\n",
        "15: workload.poisson.rate: spreads the jobs over more than 1000000000000000 us; allowed is a higher rate",
    ),
    (
        JOBS,
        "  trace: {file: a.csv, window: [3 s, 3 s]}\n",
        "15: workload.trace.window: is an empty window, from 3000000 us to 3000000 us; allowed is a start before the end",
    ),
    (
        JOBS,
        "  trace: {file: a.csv, window: 3 s}\n",
        "15: workload.trace.window: is no window; allowed is a list of two times such as [0 s, 60 s]",
    ),
]
REFERENCES = [
    (
        "models: [opt]",
        "models: [opt, nlj]",
        "12: workflows.qa.tasks.opt.models[1]: unknown model 'nlj'; did you mean 'nli'? allowed are opt, nli",
    ),
    (
        "models: [opt]",
        "models: [opt, opt]",
        "12: workflows.qa.tasks.opt.models: task opt: a model is named twice; allowed is each model once",
    ),
    (
        "after: [opt]",
        "after: [op]",
        "13: workflows.qa.tasks.nli.after.op: unknown task; did you mean 'opt'? allowed are opt, nli",
    ),
    (
        "after: [opt]",
        "after: {op: 1 KB}",
        "13: workflows.qa.tasks.nli.after.op: unknown task; did you mean 'opt'? allowed are opt, nli",
    ),
    (
        "after: [opt]",
        "after: [opt,\n opt]",
        "13: workflows.qa.tasks.nli.after.opt: predecessor 'opt' is named twice; allowed is once",
    ),
    (
        "after: [opt]",
        "after: opt",
        "13: workflows.qa.tasks.nli.after: the value 'opt' stands here; allowed is a list of tasks, or a mapping from tasks to bytes",
    ),
    (
        "after: [opt]",
        "after: [[opt]]",
        "13: workflows.qa.tasks.nli.after: a list stands as a predecessor; allowed are names of tasks",
    ),
    ("after: [opt]", "after: {opt: 1 XB}", f"13: workflows.qa.tasks.nli.after.opt: '1 XB' is {SIZE}"),
    (
        "after: [opt]",
        "after: [nli]",
        "13: workflows.qa.tasks.nli: workflow qa: tasks form a cycle: nli -> nli; allowed is an order without cycles",
    ),
    (
        "2 KB}",
        "2 KB, after: [nli]}",
        "12: workflows.qa.tasks.opt: workflow qa: tasks form a cycle: opt -> nli -> opt; allowed is an order without cycles",
    ),
    (
        "workflow: qa}",
        "workflow: q}",
        "17: workload.jobs[1].workflow: unknown workflow 'q'; did you mean 'qa'? allowed are qa",
    ),
    ("ingress: s1", "ingress: s2", "16: workload.jobs[0].ingress: unknown server 's2'; allowed are s0 to s1"),
    ("ingress: s1", "ingress: x", "16: workload.jobs[0].ingress: 'x' is no server; allowed is a server such as s0"),
    (
        JOBS,
        "  poisson: {rate: 2 /s, jobs: 3, mix: {q: 1}}\n",
        "15: workload.poisson.mix.q: unknown workflow; did you mean 'qa'? allowed are qa",
    ),
    (
        JOBS,
        "  poisson: {rate: 2 /s, jobs: 3, mix: {qa: 0}}\n",
        "15: workload.poisson.mix: has only zeros; allowed is at least one positive weight",
    ),
    (
        END,
        "options: {initial_residency: [{gpu: s0/g1, model: opt}]}",
        "18: options.initial_residency[0].gpu: unknown gpu 's0/g1'; did you mean 's0/g0'? allowed are s0/g0, s1/g0",
    ),
    (
        END,
        "options: {initial_residency: [{gpu: s0/g0, model: op}]}",
        "18: options.initial_residency[0].model: unknown model 'op'; did you mean 'opt'? allowed are opt, nli",
    ),
    (
        END,
        "restrictions: {pin: [{model: opt, on: [s0/g7]}]}",
        "18: restrictions.pin[0].on[0]: unknown place 's0/g7'; did you mean 's0/g0'? allowed are s0/g0, s0, group 1, s1/g0, s1 (groups count from 1)",
    ),
    (
        END,
        "restrictions: {pin: [{model: opt, on: [group 0]}]}",
        "18: restrictions.pin[0].on[0]: unknown place 'group 0'; did you mean 'group 1'? allowed are s0/g0, s0, group 1, s1/g0, s1 (groups count from 1)",
    ),
    (
        END,
        "restrictions: {forbid: [{workflow: q, on: [s0]}]}",
        "18: restrictions.forbid[0].workflow: unknown workflow 'q'; did you mean 'qa'? allowed are qa",
    ),
    (
        END,
        "restrictions: {pin: [{on: [s0]}]}",
        "18: restrictions.pin[0]: has none of model, workflow; allowed is exactly one of model, workflow",
    ),
    (
        END,
        "restrictions: {pin: [{model: opt, on: []}]}",
        "18: restrictions.pin[0].on: is empty; allowed is at least one GPU",
    ),
    (
        END,
        "restrictions: {max_replicas: {op: 1}}",
        "18: restrictions.max_replicas.op: unknown model; did you mean 'opt'? allowed are opt, nli",
    ),
]
CONTRADICTIONS = [
    (
        "weights: 6 GB",
        "weights: 14.001 GB",
        "7: models.opt.weights: 14001000000 bytes are larger than every GPU; allowed are at most 14000000000 bytes",
    ),
    (
        GPU,
        "kind: T4, slots: [5 GB, 5 GB]",
        "7: models.opt.weights: 6000000000 bytes are larger than every slot; allowed are at most 5000000000 bytes",
    ),
    (
        "load_bandwidth: 10 GB/s",
        "load_bandwidth: 1 B/s",
        "7: models.opt.weights: take 6000000000000000 us to load on s0/g0; allowed are at most 1000000000000000 us",
    ),
    (
        "{T4: 27 ms}",
        "{A10: 27 ms}",
        "13: workflows.qa.tasks.nli: qa/nli can run on no GPU: it lists run times for A10, the cluster has T4; allowed is a task that some GPU can run",
    ),
    (
        END,
        "restrictions: {pin: [{model: opt, on: [s0]}, {workflow: qa, on: [s1]}]}",
        "12: workflows.qa.tasks.opt: qa/opt can run on no GPU: the restrictions leave none; allowed is a task that some GPU can run",
    ),
    (
        END,
        "restrictions: {pin: [{model: opt, on: [s0]},\n {model: opt, on: [s1]}]}",
        "19: restrictions.pin[1].model: model 'opt' is pinned twice; allowed is one list of places",
    ),
    (
        END,
        "restrictions: {forbid: [{model: opt, on: [s0, s1]}]}",
        "18: restrictions.forbid[0].on: leaves no GPU for model 'opt'; allowed is to leave one",
    ),
    (
        END,
        "options: {initial_residency: [{gpu: s0/g0, model: opt},\n {gpu: s0/g0, model: opt}]}",
        "19: options.initial_residency[1]: initial residency: a model or a slot is named twice on s0/g0; allowed is a set of models that can be there together",
    ),
    (
        END,
        "options: {initial_residency: [{gpu: s0/g0, model: opt, slot: 0}]}",
        "18: options.initial_residency[0]: initial residency: opt on s0/g0 needs a slot exactly if the GPU has slots; allowed is a set of models that can be there together",
    ),
]
TEXTS = [
    ("name: small", "name: a\x01b", "1: file: control character '\\x01'; allowed is YAML"),
    ("name: small", "# a\nname: a\u2028b", "2: file: control character '\\u2028'; allowed is YAML"),
    (
        "name: small",
        "name: !!python/object:os.system x",
        "1: file: tag 'tag:yaml.org,2002:python/object:os.system'; allowed are values without tags",
    ),
    ("name: small", "---\nname: x\n---\n", "3: file: a second document starts; allowed is one document"),
    ("name: small", "name: *x", "1: file: alias 'x' has no anchor before it; allowed are aliases of anchors"),
    ("name: small", "name: &x [*x]", "1: file: alias 'x' has no anchor before it; allowed are aliases of anchors"),
    ("name: small", "\tname: x", "1: file: found character that cannot start any token; allowed is YAML"),
    ("name: small", "? [a]\n: b", "1: file: a list or mapping stands as a key; allowed is text"),
    ("name: small", "name: a\nname: b", "2: name: duplicate key; it already stands in line 1"),
    ("name: small", "name: " + "[" * 60, "1: file: is nested too deeply; allowed are 50 levels"),
    (SMALL, "", "1: file: is empty; allowed is a mapping of keys to values"),
    (SMALL, "# nothing\n", "1: file: is empty; allowed is a mapping of keys to values"),
    (SMALL, "just text", f"1: document: the value 'just text' stands here; allowed is a mapping with keys {TOP}"),
    (SMALL, "\n- a\n", f"2: document: a list stands here; allowed is a mapping with keys {TOP}"),
    (SMALL, "null", f"1: document: nothing stands here; allowed is a mapping with keys {TOP}"),
]


@pytest.mark.parametrize(("old", "new", "message"), SECTIONS + QUANTITIES + REFERENCES + CONTRADICTIONS + TEXTS)
def test_message(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert refused(tmp_path, changed(old, new)) == f"scenario.yaml:{message}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("14 GB", "6 GB"),
        ("14 GB", "10000 TB"),
        ("560 ms", "0.5 us"),
        ("560 ms", "1000000000 s"),
        ("weight: 2.5", "weight: 0"),
        ("weight: 2.5", "weight: 1e9"),
        ("servers: 2", "servers: 2 # two"),
        ("ingress: s1", "ingress: 0"),
        (GPU, "kind: T4, slots: [2 GB, 6 GB]"),
        (END, "options: {initial_residency: [{gpu: s0/g0, model: opt}, {gpu: s0/g0, model: nli}]}"),
        (END, "restrictions: {forbid: [{model: opt, on: [s0]}]}"),
    ],
)
def test_other_side_of_the_fence(tmp_path: Path, old: str, new: str) -> None:
    assert loaded(tmp_path, changed(old, new)).instance.n_tasks == 4


def test_models_of_a_task_must_fit_together(tmp_path: Path) -> None:
    both = changed("models: [opt]", "models: [opt, nli]")
    assert loaded(tmp_path, both.replace("14 GB", "8 GB")).instance.n_tasks == 4
    message = (
        "scenario.yaml:12: workflows.qa.tasks.opt: qa/opt can run on no GPU: its models (opt, nli: 8000000000 bytes) "
        "fit no eligible GPU together; allowed is a task that some GPU can run"
    )
    assert refused(tmp_path, both.replace("14 GB", "7.9 GB")) == message


def test_transfer_that_takes_too_long(tmp_path: Path) -> None:
    # At one bit per second a MB takes 8 * 10^12 us, a TB 8 * 10^18 us; latency 2 us.
    slow = changed("bandwidth: 10 GB/s, latency", "bandwidth: 1 bit/s, latency")
    assert loaded(tmp_path, slow.replace("2 KB", "1 MB")).instance.n_tasks == 4
    message = "1000000000000 bytes take 8000000000000000002 us to arrive; allowed are at most 1000000000000000 us"
    assert (
        refused(tmp_path, slow.replace("2 KB", "1 TB")) == f"scenario.yaml:13: workflows.qa.tasks.nli.after: {message}"
    )


def test_input_bytes_are_for_tasks_without_predecessors(tmp_path: Path) -> None:
    given = changed("output: 2 KB}", "output: 2 KB, input: 3 MB}")
    assert loaded(tmp_path, given).instance.jobs[0].workflow.tasks[0].input_bytes == 3_000_000
    where = "scenario.yaml:12: workflows.qa.tasks.opt.input: "
    slow = given.replace("bandwidth: 10 GB/s, latency", "bandwidth: 1 bit/s, latency").replace("3 MB", "1 TB")
    message = "1000000000000 bytes take 8000000000000000002 us to arrive; allowed are at most 1000000000000000 us"
    assert refused(tmp_path, slow) == where + message
    late = refused(tmp_path, changed("after: [opt]", "after: [opt], input: 1 KB"))
    message = "has input and after; allowed is input for a task without predecessors"
    assert late == f"scenario.yaml:13: workflows.qa.tasks.nli.input: {message}"


def test_workflow_that_no_job_uses_is_checked_too(tmp_path: Path) -> None:
    unused = "  spare: {tasks: {one: {runtime: {A10: 1 s}}}}\nworkload"
    assert refused(tmp_path, changed("workload", unused)).startswith("scenario.yaml:14: workflows.spare.tasks.one: ")


def test_first_wrong_line_is_reported(tmp_path: Path) -> None:
    two = changed("14 GB", "14").replace("name: small", "nam: small").replace("560 ms", "1")
    assert refused(tmp_path, two).startswith("scenario.yaml:1: nam: unknown key, did you mean 'name'?")


def test_alias_bomb_is_refused_at_once(tmp_path: Path) -> None:
    rows = ["b0: &b0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 10)}]" for i in range(1, 30)]
    assert (
        refused(tmp_path, "\n".join(rows))
        == "scenario.yaml:7: file: is too large; allowed are 50 levels, 5000000 values"
    )
    chain = ["b0: &b0 [x]", *(f"b{i}: &b{i} [*b{i - 1}]" for i in range(1, 99))]
    assert "allowed are 50 levels" in refused(tmp_path, "\n".join(chain))


def test_times_that_could_leave_64_bits(tmp_path: Path) -> None:
    long = changed("560 ms", "1000000000 s")
    assert loaded(tmp_path, long).instance.n_tasks == 4
    many = long.replace(JOBS, "  poisson: {rate: 1 /s, jobs: 1001}\n")
    assert refused(tmp_path, many) == (
        "scenario.yaml:14: workload: all tasks one after the other end at 1e+18 us; allowed is 1e+18 us"
    )


def test_more_sorts_of_gpus_than_tables_can_hold(tmp_path: Path) -> None:
    def groups(count: int) -> str:
        rows = [
            f"    - {{count: 1, gpu: {{kind: T4, memory: {8 + i} GB, load_bandwidth: 1 GB/s}}}}\n" for i in range(count)
        ]
        return changed(SMALL[SMALL.index("  servers") : SMALL.index("  network")], "  groups:\n" + "".join(rows))

    assert loaded(tmp_path, groups(30)).instance.n_gpus == 30
    message = "1 edges between 1500 sorts of GPUs make 2250000 transfers; allowed are 2000000"
    assert refused(tmp_path, groups(1500)) == f"scenario.yaml:2: cluster: {message}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "Is a directory"), ("none.yaml", "No such file or directory"), ("a\0b", "embedded null byte")],
)
def test_unreadable_file(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario(tmp_path / name)
    shown = str(tmp_path / name).replace("\0", "\\x00")
    assert str(caught.value) == f"{shown}:1: file: cannot be read: {reason}; allowed is a readable file"


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_bytes(b"name: a\n# \xff\n")
    with pytest.raises(InputError, match=r"scenario.yaml:2: file: is not UTF-8 text; allowed is UTF-8"):
        load_scenario(tmp_path / "scenario.yaml")


def test_endless_file() -> None:
    with pytest.raises(InputError) as caught:
        load_scenario("/dev/zero")
    assert str(caught.value) == "/dev/zero:1: file: is a device; allowed is a file or a pipe"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: file: a value is missing, the text ends; allowed is JSON"),
        ('{\n"name": "a",\n}', "3: file: a key in double quotes is missing at '}'; allowed is JSON"),
        ('{"name"\n "a"}', "2: file: a colon is missing at '\"a\"}'; allowed is JSON"),
        ('{"name": 01}', "1: file: a value is missing at '01}'; allowed is JSON"),
        ('{"name": NaN}', "1: file: a value is missing at 'NaN}'; allowed is JSON"),
        ('{"name": [1 2]}', "1: file: a comma or ] is missing at '2]}'; allowed is JSON"),
        ('{"name": "a\nb"}', "1: file: a value is missing at '\"a'; allowed is JSON"),
        ("{}\n{}", "2: file: text follows the document at '{}'; allowed is JSON"),
        ('{"name": 1,\n "name": 2}', "2: name: duplicate key; it already stands in line 1"),
        ("[" * 99_999, f"1: file: is nested deeper than 50 levels at '{'[' * 20}'; allowed is JSON"),
        ('{"name":\n{"a": 1}}', f"1: document: key 'cluster' is missing; allowed are the keys {TOP}"),
    ],
)
def test_json_message(tmp_path: Path, text: str, message: str) -> None:
    assert refused(tmp_path, text, "scenario.json") == f"scenario.json:{message}"


def test_python_data_has_no_lines() -> None:
    with pytest.raises(InputError) as caught:
        scenario_from({"cluster": {"servers": True}, "workflows": {}, "workload": {}})
    message = "the value 'True' stands here; allowed is a whole number from 1 to 100000"
    assert str(caught.value) == f"scenario: cluster.servers: {message}"


def test_what_is_allowed_is_said_once() -> None:
    task = {"runtime": "1 s", "gpus": 2, "input": "1 GB"}
    gpu = {"kind": "A", "memory": "16 GB", "load_bandwidth": "1 GB/s"}
    group = {"count": 1, "gpus_per_server": 2, "gpu": gpu, "available": [["0 s", "9 s"]]}
    with pytest.raises(InputError) as refused:
        scenario_from(
            {
                "cluster": {"groups": [group], "network": {"bandwidth": "1 GB/s"}},
                "workflows": {"w": {"tasks": {"a": task}}},
                "workload": {"jobs": [{"release": "0 s", "workflow": "w", "ingress": "s0"}]},
            }
        )
    assert str(refused.value).count("; allowed ") == 1
