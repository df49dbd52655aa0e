"""What starts a fleet: engine flags by hand, and manifests that are valid by their published schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import truenorth as tn
from tests.command import app, run
from tests.planner.answers.servers.test_streams import STEPS, document
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.answers.servers import ServersAnswer
from truenorth.planner.answers.servers.answer import write
from truenorth.planner.answers.servers.engines import Engine, NoEnginesError, asked_of_gateway
from truenorth.planner.answers.servers.manifests import kubernetes_text, ray_serve_text
from truenorth.planner.show.servers_words import answer_in_words

DOCUMENTED = {
    "--block-size", "--enable-lora", "--kv-cache-memory-bytes", "--lora-modules", "--max-loras",
    "--max-num-batched-tokens", "--max-num-seqs", "--port", "--scheduling-policy", "--served-model-name",
    "--tensor-parallel-size",
}  # fmt: skip
"""Of https://docs.vllm.ai/en/stable/cli/serve/, those that are written here."""
VERSIONS = ("1.30.0", "1.37.0")
HOSTILE = "$(HOME) 1e3: #x\n- y\"'{}模型 " + "n" * 80


def asked(stream: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **more: Any) -> Scenario:
    """Return four requests of 100 prompt tokens and one of the answer, each 100 ms, that take two servers."""
    data = document([(0, 100, 1)] * 4, "p100 latency <= 200 ms") | more
    data["streams"]["chat"] |= stream or {}
    data["cluster"] |= cluster or {}
    return scenario_from(data)


def flags(scenario: Scenario, **more: Any) -> list[list[str]]:
    return [
        each.flags for each in tn.servers(scenario, policies=more.pop("policies", ["least_tokens"]), **more).engines
    ]


def documents(folder: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((folder / "kubernetes.yaml").read_text()))


def validate(texts: list[dict[str, Any]]) -> None:
    """Hold documents against Kubernetes' own schemas, unknown keys refused."""
    validator = pytest.importorskip("kubernetes_validate")
    for each in texts:
        for version in VERSIONS:
            validator.validate(each, version.rpartition(".")[0], strict=True)


def test_flags_say_seats_tokens_of_an_iteration_and_kv_memory() -> None:
    """Prompts of 100 tokens beside 4 decodes are 104 tokens to vLLM; 10 GB hold 10,000 tokens of 1 MB."""
    (engine,) = tn.servers(asked(), policies=["least_tokens"]).engines
    assert (engine.stream, engine.gpu, engine.replicas, engine.gpus) == ("chat", "A", 2, 1)
    assert engine.flags == ["--max-num-seqs=4", "--max-num-batched-tokens=104", "--kv-cache-memory-bytes=10000000000"]
    assert (engine.kv_tokens, engine.longest) == (10_000, 101)


def test_a_shared_budget_is_the_tokens_of_an_iteration_and_kv_is_of_whole_blocks() -> None:
    """Beside a model of 1.005 GB 8,995 tokens of 1 MB fit: 562 blocks of 16, of 8,992 MB."""
    stream = {"budget": "shared", "kv": "grows", "block": 16, "models": ["m"]}
    made = flags(asked(stream, models={"m": {"weights": "1005 MB"}}, slo="p100 latency <= 2 s"))
    numbers = ["--max-num-seqs=4", "--max-num-batched-tokens=100"]
    assert made == [[*numbers, "--kv-cache-memory-bytes=8992000000", "--block-size=16"]]


@pytest.mark.parametrize(("block", "taken"), [(16, True), (20, False)])
def test_blocks_that_vllm_does_not_take_are_left_out_in_words(block: int, taken: bool) -> None:
    """10 GB hold 500 blocks of 20 tokens, and vLLM makes its own of them."""
    stream = {"kv": "grows", "block": block, "models": ["m"]}
    scenario = asked(stream, models={"m": {"weights": "1 B"}}, slo="p100 latency <= 2 s")
    engines = tn.servers(scenario, policies=["least_tokens"]).engines
    assert ("--block-size=16" in engines[0].flags, "block_size: 16" in ray_serve_text(engines, [])) == (taken, taken)
    said = f"is left out: the scenario's blocks of KV are of {block} tokens, and vLLM takes 1, 8, 16, 32, 64 or 128\n"
    assert (f"--block-size {said}" in kubernetes_text(engines, [])) is not taken
    assert (f"block_size in engine_kwargs {said}" in ray_serve_text(engines, [])) is not taken


def test_a_limit_on_requests_at_once_is_that_of_the_engines() -> None:
    made = flags(asked(slo="p100 latency <= 2 s"), policies=["least_tokens:limit=3"])
    assert made[0][:2] == ["--max-num-seqs=3", "--max-num-batched-tokens=103"]


def test_a_group_described_as_one_gpu_is_a_tensor_parallel_engine() -> None:
    """A GPU `4xH100` is four: an engine of degree 4 with a quarter of the KV memory on each."""
    stream = {"prefill": "1000 /s", "step": STEPS}
    gpu = {"kind": "4xH100", "memory": "10 GB", "load_bandwidth": "1 GB/s"}
    (engine,) = tn.servers(asked(stream, {"gpu": gpu}), policies=["least_tokens"]).engines
    assert (engine.gpu, engine.gpus, engine.replicas) == ("H100", 4, 2)
    assert engine.flags[0] == "--tensor-parallel-size=4"
    assert engine.flags[-1] == "--kv-cache-memory-bytes=2500000000"


def test_adapters_are_served_beside_their_model(tmp_path: Path) -> None:
    """Two adapters of 500 MB leave 9 GB for KV."""
    data = document([(0, 100, 1)] * 2, "p100 latency <= 2 s")
    data["models"] = {"m": {"weights": "0.5 GB"}}
    data["streams"]["chat"] |= {
        "models": ["m"],
        "adapters": {"sql": {"weights": "250 MB"}, "law": {"weights": "250 MB"}},
    }
    data["workflows"] = {"chat": {"tasks": {"answer": {"stream": "chat", "adapter": "sql"}}}}
    answer = tn.servers(scenario_from(data), policies=["least_tokens"])
    assert answer.engines[0].flags[2:] == ["--kv-cache-memory-bytes=9000000000", "--enable-lora", "--max-loras=2"]
    text = kubernetes_text(answer.engines, [])
    args = list(yaml.safe_load_all(text))[1]["spec"]["template"]["spec"]["containers"][0]["args"]
    at = args.index("--lora-modules")
    assert [json.loads(each)["name"] for each in args[at + 1 :]] == ["sql", "law"]
    assert "--max-lora-rank if" in text
    text = ray_serve_text(answer.engines, [])
    ray = yaml.safe_load(text)["applications"][0]["args"]["llm_configs"][0]
    # Ray takes one folder for all of them, in a store that it knows, and flags of vLLM by their names in Python.
    lora = {"dynamic_lora_loading_path": "s3://BUCKET/ADAPTERS", "max_num_adapters_per_replica": 2}
    assert ray["lora_config"] == lora
    assert "s3://BUCKET/ADAPTERS: where a folder for each adapter lies, called by its name (sql, law)," in text
    assert "max_lora_rank in engine_kwargs if" in text
    assert "--" not in text


def urgent(policy: str) -> ServersAnswer:
    """Return the answer for requests of two workflows of one class, the first of which is urgent."""
    data = document([(0, 100, 1)] * 4, "p100 latency <= 400 ms")
    data["workflows"] = {name: {"tasks": {"answer": {"stream": "chat"}}} for name in ("chat", "batch job")}
    for job in data["workload"]["jobs"][2:]:
        job["workflow"] = "batch job"
    return tn.servers(scenario_from(data), policies=[policy], max=3)


def test_urgency_is_a_scheduling_policy_and_nodes_apart_are_deployments_of_their_own(tmp_path: Path) -> None:
    (engine,) = urgent("least_tokens:urgent=chat").engines
    assert engine.flags[-1] == "--scheduling-policy=priority"
    assert engine.priorities == (("chat", 0), ("all others", 1))
    answer = urgent("least_tokens:urgent=chat,apart=1")
    assert [(each.workflow, each.replicas) for each in answer.engines] == [("chat", 1), (None, 1)]
    assert not any("scheduling" in flag for each in answer.engines for flag in each.flags)
    made = list(yaml.safe_load_all(kubernetes_text(answer.engines, [])))
    validate(made)
    assert [each["metadata"]["name"] for each in made] == ["chat-chat", "chat-others", "chat-a-chat", "chat-a-others"]
    assert made[2]["metadata"]["annotations"] == {"truenorth/workflow": "chat"}
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in made[2:]]
    selected = [[each["spec"]["selector"].items() <= pod.items() for pod in pods] for each in made[:2]]
    assert selected == [[True, False], [False, True]]
    write(answer, tmp_path)
    said = (tmp_path / "kubernetes.yaml").read_text()
    assert "# Fleet: 1 chat on A for chat + 1 chat on A for all other workflows, with the policy least_tokens:" in said
    assert "KV tokens: chat on A for chat 101 and 10,000; chat on A for all other workflows 101 and 10,000" in said


ORDERED = "--scheduling-policy=priority"


def prioritised(of_jobs: list[int], **of_workflows: int) -> ServersAnswer:
    """Return the answer for a request each of two workflows by turns, with priorities of these jobs and workflows."""
    data = document([(0, 100, 1)] * 4, "p100 latency <= 400 ms")
    tasks = {"tasks": {"answer": {"stream": "chat"}}}
    data["workflows"] = {name: tasks | {"priority": of_workflows.get(name, 0)} for name in ("talk", "files")}
    for at, job in enumerate(data["workload"]["jobs"]):
        job["workflow"] = ("talk", "files")[at % 2]
    for job, priority in zip(data["workload"]["jobs"], of_jobs, strict=False):
        job["priority"] = priority
    return tn.servers(scenario_from(data), policies=["least_tokens"], max=3)


def test_priorities_of_the_scenario_are_numbers_of_vllm_the_other_way_round() -> None:
    """Truenorth serves the highest first, vLLM the lowest."""
    answer = prioritised([], talk=5, files=1)
    (engine,) = answer.engines
    assert engine.priorities == (("talk", 0), ("files", 1))
    assert engine.flags[-1] == ORDERED
    said = "priority of each request: talk: 0, files: 1 (vLLM serves the lowest number first;"
    assert said in kubernetes_text(answer.engines, [])
    assert said in ray_serve_text(answer.engines, [])
    sent = "Send vLLM's priority with each request (--scheduling-policy priority, the lowest goes first)"
    assert f"{sent}, talk: 0, files: 1." in answer_in_words(answer.record())
    assert encode(answer.record())["engines"][0]["priorities"] == {"talk": 0, "files": 1}


def test_priorities_that_differ_within_a_workflow_are_said_by_the_scenarios_own() -> None:
    (engine,) = prioritised([3, 0, 2, 0]).engines
    assert engine.priorities == tuple((f"priority {each} of the scenario", at) for at, each in enumerate((3, 2, 0)))


def test_equal_priorities_are_none() -> None:
    (engine,) = prioritised([], talk=2, files=2).engines
    assert (engine.priorities, ORDERED in engine.flags) == ((), False)


ONE_ENGINE = "The answer holds only if the gateway keeps the calls of a session on one engine."
CACHED = "The answer holds only if the gateway sends requests to engines that have their prefix cached."
NO_HOLD = "vLLM cannot hold KV for a later call (hold): its prefix cache stands in for that, so keep it on."
ON = "The scenario's nodes cache prefixes: keep vLLM's prefix cache on."


@pytest.mark.parametrize(
    ("tie", "policy", "said"),
    [
        ({}, "least_tokens", []),
        ({}, "prefix_affinity", [ONE_ENGINE]),
        ({"with": "plan"}, "least_tokens", [ONE_ENGINE]),
        ({"with": "plan", "hold": True}, "least_tokens", [ONE_ENGINE, NO_HOLD]),
    ],
)
def test_what_sessions_ask_of_the_gateway_is_said(
    tie: dict[str, Any], policy: str, said: list[str], tmp_path: Path
) -> None:
    """Two calls of one job: on any nodes, on that of the first, or there with its KV held."""
    data = document([], "p100 latency <= 2 s")
    after = {"plan": {"bytes": "1 B", "hold": bool(tie.pop("hold", False))}}
    call = {"stream": "chat", "prompt": 100, "output_tokens": 1}
    data["workflows"] = {"chat": {"tasks": {"plan": call, "answer": {**call, "uncached": 50, "after": after, **tie}}}}
    data["workload"] = {"jobs": [{"release": "0 s", "workflow": "chat"}]}
    write(tn.servers(scenario_from(data), policies=[policy]), tmp_path)
    for name in ("kubernetes.yaml", "ray_serve.yaml"):
        text = (tmp_path / name).read_text()
        assert [line for line in (ONE_ENGINE, CACHED, NO_HOLD, ON) if f"# {line}\n" in text] == said


@pytest.mark.parametrize(("policy", "said"), [("least_tokens", [ON]), ("prefix_affinity", [CACHED, ON])])
def test_caches_of_nodes_are_said(policy: str, said: list[str]) -> None:
    data = document([(0, 100, 1)] * 2, "p100 latency <= 2 s")
    data["streams"]["chat"] |= {"prefix_cache": "node", "prefix_block": 50}
    data["workflows"]["chat"]["tasks"]["answer"] |= {"blocks": [1, 2]}
    best = tn.servers(scenario_from(data), policies=[policy]).recommended
    assert best is not None
    assert asked_of_gateway(best) == said


def test_the_files_say_where_they_come_from_and_are_valid(tmp_path: Path) -> None:
    """Two kinds, one of which drains for 45 s: a Service, and a Deployment for each kind."""
    data = document([(0, 100, 1)] * 9, "p100 latency <= 350 ms", [(1, "A", 1.0), (1, "B", 1.0)])
    data["cluster"]["groups"][1] |= {"drain": "44.2 s", "available": [["0 s", "600 s"]]}
    answer = tn.servers(scenario_from(data), policies=["least_work"])
    assert answer.recommended is not None
    assert all(answer.recommended.mix)
    write(answer, tmp_path)
    made = documents(tmp_path)
    validate(made)
    assert [(each["kind"], each["metadata"]["name"]) for each in made] == [
        ("Service", "chat"), ("Deployment", "chat-a"), ("Deployment", "chat-b"),
    ]  # fmt: skip
    specs = [each["spec"]["template"]["spec"] for each in made[1:]]
    assert [each["spec"]["replicas"] for each in made[1:]] == list(answer.recommended.mix)
    assert [each["nodeSelector"] for each in specs] == [{"nvidia.com/gpu.product": kind} for kind in "AB"]
    assert [each.get("terminationGracePeriodSeconds") for each in specs] == [None, 45]
    assert specs[0]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    given = {arg.partition("=")[0] for each in specs for arg in each["containers"][0]["args"]}
    assert given <= DOCUMENTED
    text = (tmp_path / "kubernetes.yaml").read_text()
    said = json.loads((tmp_path / "answer.json").read_text())
    for words in (
        said["scenario"]["hash"],
        "p100 latency <= 350 ms",
        "9 jobs released within 0 s",
        "policy least_work",
    ):
        assert words in text
    assert "image: vllm/vllm-openai:VERSION" in text
    assert "chat on A 101 and 10,000; chat on B 101 and 10,000" in text
    assert [each["replicas"] for each in said["engines"]] == list(answer.recommended.mix)
    ray = yaml.safe_load((tmp_path / "ray_serve.yaml").read_text())
    configs = ray["applications"][0]["args"]["llm_configs"]
    assert [each["model_loading_config"]["model_id"] for each in configs] == ["chat-a", "chat-b"]
    assert configs[0]["engine_kwargs"]["max_num_batched_tokens"] == 104


def test_the_config_of_ray_is_one_by_its_schema(tmp_path: Path) -> None:
    schema = pytest.importorskip("ray.serve.schema")
    write(tn.servers(asked(), policies=["least_tokens"]), tmp_path)
    made = schema.ServeDeploySchema.model_validate(yaml.safe_load((tmp_path / "ray_serve.yaml").read_text()))
    assert made.applications[0].import_path == "ray.serve.llm:build_openai_app"


@pytest.mark.parametrize("name", [HOSTILE, "y", "1e3", "null", "-", "*a", "模型", "a: b", "!!int 3"])
def test_names_become_legal_and_every_text_stays_the_text_it_is(name: str) -> None:
    engine = Engine(name, name, name, 1, 1, (("max_num_seqs", 4),), (name,), 9, 9, 0)
    other = Engine(f"{name.upper()} ", name, None, 1, 1, (), (), 9, 9, 0)
    origin = [f"Made by {name}"]
    made = list(yaml.safe_load_all(kubernetes_text([engine, other], origin)))
    validate(made)
    deployments = [each for each in made if each["kind"] == "Deployment"]
    names = [each["metadata"]["name"] for each in made if each["kind"] == "Deployment"]
    assert len(set(names)) == 2
    args = deployments[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[0] == f"--served-model-name={name}".replace("$(", "$$(")
    assert deployments[0]["metadata"]["annotations"]["truenorth/workflow"] == name
    ray = yaml.safe_load(ray_serve_text([engine, other], origin))["applications"][0]["args"]["llm_configs"]
    assert [ray[0]["model_loading_config"]["model_id"], ray[0]["accelerator_type"]] == [name, name]


def test_text_that_other_readers_take_for_a_number_is_quoted() -> None:
    """PyYAML reads 1e3 and y as text; the readers of Kubernetes do not."""
    text = ray_serve_text([Engine("1e3", "y", None, 1, 1, (), (), None, 9, 0)], [])
    assert 'model_id: "1e3"' in text
    assert 'accelerator_type: "y"' in text


def test_a_fleet_that_is_no_set_of_engines_has_no_manifest_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One server of two models in turn; what an earlier answer left there goes."""
    data = document([(0, 100, 1), (0, 100, 1)], "p100 latency <= 30 s")
    data["models"] = {"m": {"weights": "8 GB"}, "n": {"weights": "8 GB"}}
    data["streams"] = {name: data["streams"]["chat"] | {"models": [name]} for name in "mn"}
    data["workflows"] = {name: {"tasks": {"answer": {"stream": name}}} for name in "mn"}
    for job, name in zip(data["workload"]["jobs"], "mn", strict=True):
        job["workflow"] = name
    file, out = tmp_path / "two.json", tmp_path / "out"
    file.write_text(json.dumps(data))
    out.mkdir()
    (out / "kubernetes.yaml").write_text("stale")
    arguments = ["servers", str(file), "--policies", "least_tokens", "-o", str(out), "--time-limit", "20"]
    assert run(app, arguments) == 0
    why = "s0/g0 serves several models in turn (m, n), and an engine serves one"
    assert f"wrote no manifest that starts the engines: {why}" in capsys.readouterr().err
    assert not (out / "kubernetes.yaml").exists()
    assert json.loads((out / "answer.json").read_text())["no_engines"] == why


def test_plain_tasks_have_no_engines() -> None:
    data = document([(0, 100, 1)], "p100 latency <= 10 s")
    data["workflows"] = {"chat": {"tasks": {"answer": {"runtime": "1 s"}}}}
    data["workload"]["jobs"] = [{"release": "0 s", "workflow": "chat"}]
    answer = tn.servers(
        scenario_from({key: value for key, value in data.items() if key != "streams"}), policies=["jit"]
    )
    with pytest.raises(NoEnginesError, match="not every task is a request"):
        _ = answer.engines
    assert not {"engines", "no_engines"} & encode(answer.record()).keys()
