"""What a job's files say about it: values by hand, hostile files, and that nothing is ever executed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truenorth.models.scenario import InputError
from truenorth.planner.inputs.estimate.sources import (
    FIELDS,
    MAX_CHARACTERS,
    MAX_FILE_BYTES,
    DescriptionCache,
    JobDescription,
    describe,
)

IMAGENET = """\
import argparse, os, torch
import torchvision.models as models
import torchvision.datasets as datasets

parser = argparse.ArgumentParser()
parser.add_argument("data", nargs="?", default="imagenet")
parser.add_argument("-a", "--arch", default="resnet18")
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("-b", "--bsz", default=256, type=int, dest="per_gpu")
parser.add_argument("--amp", action="store_true")


def main():
    args = parser.parse_args()
    model = models.__dict__[args.arch]()
    train = datasets.ImageFolder(os.path.join(args.data, "train"))
    val = datasets.ImageFolder(os.path.join(args.data, "val"))
    loader = torch.utils.data.DataLoader(train, batch_size=args.per_gpu)
    val_loader = torch.utils.data.DataLoader(val, batch_size=7)
    for epoch in range(0, args.epochs):
        with torch.autocast("cuda", enabled=args.amp):
            pass
"""
SLURM = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:a100:4
BS=64
torchrun --nnodes=2 --nproc_per_node=4 \\
    train.py /data/inet -a resnet50 -b ${BS} --amp --epochs=${EPOCHS:-12} > log.txt 2>&1
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


class Job:
    """Writes files and describes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, command: str = "", **files: str | bytes) -> JobDescription:
        paths = []
        for name, content in files.items():
            path = self.folder / ".".join(name.rsplit("_", 1))
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            paths.append(path)
        return describe(paths, command)


def known(description: JobDescription) -> dict[str, object]:
    return {field: getattr(description, field) for field in FIELDS if getattr(description, field) is not None}


def where(description: JobDescription) -> list[str]:
    return [f"{each.field} {Path(each.file).name}:{each.line}" for each in description.evidence]


def test_defaults_of_options_are_followed_to_their_use(job: Job) -> None:
    found = job(train_py=IMAGENET)
    # --amp is off, so precision stays open; the loader of `val` (7) belongs to the evaluation.
    assert known(found) == {"model": "resnet18", "batch_size": 256, "epochs": 90.0, "dataset": "imagenet/train"}
    assert where(found) == ["model train.py:7", "batch_size train.py:9", "epochs train.py:8", "dataset train.py:16"]
    assert found.problems == ()


def test_a_launch_line_overrides_the_options_that_the_source_declares(job: Job) -> None:
    found = job("python train.py -b 32 --arch vit_b_16 /mnt/data", train_py=IMAGENET)
    # `-b` is declared with dest="per_gpu", a name that says nothing by itself.
    assert known(found) == {"model": "vit_b_16", "batch_size": 32, "epochs": 90.0, "dataset": "/mnt/data"}
    assert where(found) == ["model command:1", "batch_size command:1", "epochs train.py:8", "dataset command:1"]


def test_a_slurm_script_gives_variables_gpus_and_overrides(job: Job) -> None:
    found = job(train_py=IMAGENET, run_sh=SLURM)
    assert known(found) == {
        "model": "resnet50",
        "batch_size": 64,
        "epochs": 12.0,
        "precision": "fp16",  # --amp switches on torch.autocast("cuda"), whose default is fp16
        "dataset": "/data/inet",
        "gpus": 8,  # 4 processes on each of 2 nodes
    }
    assert where(found)[-1] == "gpus run.sh:5"


def test_later_kinds_of_files_override_earlier_ones(job: Job) -> None:
    source = 'batch_size = 8\nDataLoader(data, batch_size=16)\nparser.add_argument("--batch-size", default=4)\n'
    config, script = "train: {batch_size: 32}\n", "python train.py --batch-size 64\n"
    assert job(a_py='parser.add_argument("--batch-size", default=4)').batch_size == 4
    assert job(a_py='batch_size = 8\nparser.add_argument("--batch-size", default=4)').batch_size == 8
    assert job(a_py=source).batch_size == 16
    assert job(a_py=source, b_yaml=config).batch_size == 32
    assert job(a_py=source, b_yaml=config, c_sh=script).batch_size == 64
    # The order in which the files are named matters only within a kind.
    assert job(c_sh=script, b_yaml=config, a_py=source).batch_size == 64
    assert job("python train.py --batch_size=128", c_sh=script, a_py=source).batch_size == 128
    assert job(b_yaml=config, d_yaml="batch_size: 33").batch_size == 33


def test_an_override_that_only_a_shell_knows_makes_the_field_unknown(job: Job) -> None:
    assert job("python train.py -b $SIZE", train_py=IMAGENET).batch_size is None
    assert job("python train.py -b $(cat size)", train_py=IMAGENET).batch_size is None
    assert job("torchrun --nproc_per_node=4 --nnodes=$N train.py", train_py=IMAGENET).gpus is None
    assert job("for b in 16 32; do python train.py -b $b; done", train_py=IMAGENET).batch_size is None
    assert job("python train.py --dtype auto", a_py='LLM("m", dtype="float16")').precision is None


SOURCES = [
    ('AutoModel.from_pretrained("gpt2")', {"model": "gpt2"}),
    ('NAME = "org/" + "m"\nAutoModel.from_pretrained(NAME)', {"model": "org/m"}),
    ('size = "7b"\nAutoModel.from_pretrained(f"llama-{size}")', {"model": "llama-7b"}),
    ('AutoModel.from_pretrained("a")\nAutoTokenizer.from_pretrained("b")', {"model": "a"}),
    ('AutoTokenizer.from_pretrained("b")', {"model": "b"}),
    ("AutoModel.from_pretrained(path)", {}),
    ("from torchvision.models import resnet50\nresnet50()", {"model": "resnet50"}),
    ("import torchvision\ntorchvision.models.segmentation.fcn_resnet50()", {"model": "fcn_resnet50"}),
    ("from torchvision import models\ngetattr(models, 'vgg16')()", {"model": "vgg16"}),
    ("models.resnet50()", {}),
    ("import timm\ntimm.create_model('vit_base_patch16_224')", {"model": "vit_base_patch16_224"}),
    ("torch.hub.load('pytorch/vision', 'resnet18')", {"model": "resnet18"}),
    ("pipeline('summarization', model='t5-small', batch_size=4)", {"model": "t5-small", "batch_size": 4}),
    ("LLM('m', tensor_parallel_size=2, dtype='bfloat16')", {"model": "m", "gpus": 2, "precision": "bf16"}),
    ("Trainer(model=model)", {}),
    ("batch_size = 4 * 8", {"batch_size": 32}),
    ("BATCH_SIZE = 32", {"batch_size": 32}),
    ("batch_size = 2 ** 5", {}),
    ("batch_size = 32\nif debug:\n    batch_size = 2\n", {"batch_size": 32}),
    ("if debug:\n    batch_size = 2\nelse:\n    batch_size = 32\n", {}),
    ("if debug:\n    batch_size = 2\nelse:\n    batch_size = 2\n", {"batch_size": 2}),
    ("if __name__ == '__main__':\n    batch_size = 32\n", {"batch_size": 32}),
    ("batch_size = 3\nbatch_size = batch_size * 2\n", {"batch_size": 6}),
    ("batch_size = 3\nbatch_size = batch_size * n\n", {}),
    ("batch_size = 3\nbatch_size *= 2\n", {}),
    ("batch_size = batch_size\n", {}),
    ("a = b\nb = a\nDataLoader(x, batch_size=a)", {}),
    ("batch_size = True", {}),
    ("batch_size = 0", {}),
    ("batch_size = 'large'", {}),
    ("batch_size: int = 32", {"batch_size": 32}),
    ("batch_size, epochs = 32, 3", {"batch_size": 32, "epochs": 3.0}),
    ("batch_size, epochs = read()", {}),
    ("def train(batch_size=16, *, epochs=2): pass", {"batch_size": 16, "epochs": 2.0}),
    ("batch_size = 8\ndef load(batch_size):\n    DataLoader(x, batch_size=batch_size)\n", {"batch_size": 8}),
    ("def load(x):\n    b = 8\n    DataLoader(x, b)\n", {"batch_size": 8}),
    ("DataLoader(train, 32)\nDataLoader(test, 64)", {"batch_size": 32}),
    ("test_loader = DataLoader(x, 64)\nloader = DataLoader(y, 32)", {"batch_size": 32}),
    ("loader = DataLoader(y, 32)\ntest_loader = DataLoader(x, 64)", {"batch_size": 32}),
    ("test_loader = DataLoader(x, 64)", {"batch_size": 64}),
    ("config = {'batch_size': 32, 'epochs': 3}", {"batch_size": 32, "epochs": 3.0}),
    ("config = {'bs': 32}\nDataLoader(x, batch_size=config['bs'])", {"batch_size": 32}),
    ("log(config={'batch_size': args.batch_size})\np.add_argument('--batch-size', default=9)", {"batch_size": 9}),
    ("class A:\n    def f(self):\n        self.n = 5\n    def g(self):\n        fit(epochs=self.n)", {"epochs": 5.0}),
    ("@dataclass\nclass C:\n    batch_size: int = field(default=12)\n", {"batch_size": 12}),
    ("flags.DEFINE_integer('batch_size', 32, 'help')", {"batch_size": 32}),
    ("@click.option('--epochs', '-e', default=7)\ndef f(epochs): pass", {"epochs": 7.0}),
    ("batch_size = int(os.environ.get('BS', 16))", {"batch_size": 16}),
    ("batch_size = int(os.environ['BS'])", {}),
    ("TrainingArguments('o', num_train_epochs=0.5, max_steps=-1, bf16=True)", {"epochs": 0.5, "precision": "bf16"}),
    ("TrainingArguments('o', fp16=False, max_steps=1e3)", {"steps": 1000}),
    ("TrainingArguments('o', logging_steps=5, warmup_steps=6, per_device_eval_batch_size=7)", {"batch_size": 7}),
    ("torch.linspace(0, 1, steps=5)", {}),
    ("torch.zeros(3, dtype=torch.float16)", {}),
    ("def f(dtype=torch.float32): pass", {}),
    ("AutoModel.from_pretrained('m', dtype=torch.bfloat16)", {"model": "m", "precision": "bf16"}),
    ("np.set_printoptions(precision=16)", {}),
    ("for epoch in tqdm(range(10)): pass", {"epochs": 10.0}),
    ("p.add_argument('--epochs', default=14)\nfor epoch in range(1, args.epochs + 1): pass", {"epochs": 14.0}),
    ("for epoch in range(start, 10): pass", {}),
    ("if a:\n    load_dataset('x')\nelse:\n    load_dataset('y')", {}),
    ("if a:\n    load_dataset('x')\nelse:\n    load_dataset('x')", {"dataset": "x"}),
    ("dataset = 'd'\nif a:\n    load_dataset('x')\nelse:\n    load_dataset('y')", {"dataset": "d"}),
    ("if a:\n    load_dataset('x')\nload_dataset('y')\nif b:\n    load_dataset('z')", {"dataset": "y"}),
    ("start = 'scratch'\nif start != 'scratch':\n    GPT.from_pretrained(start)", {}),
    ("for step, x in enumerate(range(500)): pass", {"steps": 500}),
    ("for i in range(10): pass", {}),
    ("pipe(prompt, num_inference_steps=30)", {"steps": 30}),
    ("model.half()", {"precision": "fp16"}),
    ("x.half()", {}),
    ("pipe = pipe.to('cuda', torch.float16)", {"precision": "fp16"}),
    ("torch.autocast('cuda', dtype=torch.bfloat16)", {"precision": "bf16"}),
    ("torch.cuda.amp.autocast()", {"precision": "fp16"}),
    ("torch.autocast(device)", {"precision": "amp"}),
    ("torch.autocast('cuda', enabled=False)", {}),
    ("Trainer(precision='16-mixed', devices=4, num_nodes=2)", {"precision": "fp16", "gpus": 8}),
    ("Trainer(devices='auto')", {}),
    ("Accelerator(mixed_precision='no')", {"precision": "fp32"}),
    ("AutoModel.from_pretrained('m', load_in_4bit=True)", {"model": "m", "precision": "int4"}),
    ("nn.DataParallel(model, device_ids=[0, 1, 2])", {"gpus": 3}),
    ("nn.parallel.DistributedDataParallel(model, device_ids=[0])", {}),
    ("mp.spawn(main, nprocs=4)\nworld_size = 4", {}),  # processes, with or without a GPU each
    ("load_dataset('imdb')", {"dataset": "imdb"}),
    ("load_dataset('imdb', split='test')\nload_dataset('glue', split='train')", {"dataset": "glue"}),
    ("load_dataset('json', data_files='x.jsonl')", {"dataset": "x.jsonl"}),
    ("from torchvision import datasets\ndatasets.CIFAR10('.', train=True)", {"dataset": "CIFAR10"}),
    ("pd.read_csv('labels.csv')\nload_dataset('imdb')", {"dataset": "imdb"}),
    ("ImageFolder(root='data/train')", {"dataset": "data/train"}),
    ("x = 1", {}),
    ("", {}),
]  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), SOURCES)
def test_source(job: Job, source: str, expected: dict[str, object]) -> None:
    found = job(a_py=source)
    assert known(found) == expected
    assert found.problems == ()
    assert [each.field for each in found.evidence] == [field for field in FIELDS if field in expected]


LAUNCHES = [
    ("python train.py --batch-size 32", {"batch_size": 32}),
    ("python train.py --model gpt2 --fp16 --epochs 3", {"model": "gpt2", "precision": "fp16", "epochs": 3.0}),
    ("torchrun --nproc_per_node=4 train.py", {"gpus": 4}),
    ("torchrun --nproc_per_node=gpu train.py", {}),
    ("#SBATCH --gres=gpu\npython train.py", {"gpus": 1}),
    ("python -m torch.distributed.run --nnodes 2 --nproc-per-node 8 train.py", {"gpus": 16}),
    ("accelerate launch --num_machines 2 --num_processes 8 --mixed_precision bf16 t.py",
     {"gpus": 8, "precision": "bf16"}),
    ("deepspeed --num_gpus 8 --num_nodes 2 train.py", {"gpus": 16}),
    ("mpirun -np 4 python train.py -n 9", {"gpus": 4}),
    ("CUDA_VISIBLE_DEVICES=0,1 python train.py", {"gpus": 2}),
    ("export CUDA_VISIBLE_DEVICES=3\npython train.py", {"gpus": 1}),
    ("CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node=2 train.py", {"gpus": 2}),
    ("python train.py trainer.devices=4 model.name=resnet50 +trainer.max_epochs=5",
     {"gpus": 4, "model": "resnet50", "epochs": 5.0}),
    ("python train.py --learning-rate -1e-4 --steps 7", {"steps": 7}),
    ("vllm serve org/model --tensor-parallel-size 2", {"model": "org/model", "gpus": 2}),
    ("cd src && python train.py --bs 4 | tee log", {"batch_size": 4}),
    ("pip install x --batch-size 4", {}),
    ("echo python", {}),
    ("#SBATCH --gpus=a100:8\npython train.py", {"gpus": 8}),
    ("python train.py --batch-size 'unclosed", {}),
    ("python train.py --model 'a b' # --batch-size 3", {"model": "a b"}),
    ("A=1; B=$A$A; python train.py --epochs $B", {"epochs": 11.0}),
    ("python train.py --batch-size", {}),
    ("python train.py --batch-size 1e400", {}),
]  # fmt: skip


@pytest.mark.parametrize(("command", "expected"), LAUNCHES)
def test_launch_line(command: str, expected: dict[str, object]) -> None:
    assert known(describe([], command)) == expected


CONFIGS = [
    ("yaml", "model: {name: bert}\ndata: {name: glue}\ntrainer: {max_epochs: 3, devices: [0, 1]}",
     {"model": "bert", "epochs": 3.0, "dataset": "glue", "gpus": 2}),
    ("yaml", "model_name_or_path: m\nper_device_train_batch_size: 8\nbf16: true\nfp16: false",
     {"model": "m", "batch_size": 8, "precision": "bf16"}),
    ("yaml", "lr_scheduler: {total_steps: 5}\nsave: {steps: 6}\nsteps: 7", {"steps": 7}),
    ("yaml", "validation: {batch_size: 5}\ntrain: {batch_size: 6}", {"batch_size": 6}),
    ("yaml", "base: &b {batch_size: 8}\ntrain: {<<: *b}", {"batch_size": 8}),
    ("json", '{"_name_or_path": "bert", "torch_dtype": "bfloat16"}', {"model": "bert", "precision": "bf16"}),
    ("json", '{"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": true}}', {"precision": "fp16"}),
    ("json", "[1, 2]", {}),
    ("toml", 'model = "m"\n[train]\nbatch-size = 4\n', {"model": "m", "batch_size": 4}),
    ("toml", "dtype = 1979-05-27\nsteps = inf\nepochs = nan\n", {}),
]  # fmt: skip


@pytest.mark.parametrize(("suffix", "text", "expected"), CONFIGS)
def test_configuration(job: Job, suffix: str, text: str, expected: dict[str, object]) -> None:
    found = job(**{f"a_{suffix}": text})
    assert known(found) == expected
    assert found.problems == ()


def test_a_configuration_is_followed_into_the_source_that_reads_it(job: Job) -> None:
    source = 'm = AutoModel.from_pretrained(cfg.model.name)\nload_dataset(cfg["data"]["name"])\nDataLoader(x, cfg.b)\n'
    found = job(a_py=source, b_yaml="model:\n  name: bert\ndata:\n  name: glue\nb: 16\n")
    assert known(found) == {"model": "bert", "dataset": "glue", "batch_size": 16}
    assert where(found) == ["model b.yaml:2", "batch_size b.yaml:5", "dataset b.yaml:4"]


def test_lines_of_toml(job: Job) -> None:
    found = job(a_toml='# c\n[train.data]\nname = "imdb"\n\n[model]\nname = "m"\n')
    assert where(found) == ["model a.toml:6", "dataset a.toml:3"]


LAUGHS = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{','.join(['*' + chr(97 + at)] * 10)}]\n" for at in range(9)
)
HOSTILE = [
    ("a_py", b"def f(:\n  pass", 1, "is not Python 3: invalid syntax; allowed is Python source"),
    ("a_py", b"print 'x'", 1, "is not Python 3: Missing parentheses"),
    ("a_py", b"a\x00b", 1, "is not Python 3: source code string cannot contain null bytes"),
    ("a_py", b"# -*- coding: nonsense -*-\n", 1, "is not Python 3: unknown encoding: nonsense"),
    ("a_py", b"x = '\xff\xfe'", 1, "is not Python 3: "),
    ("a_py", b"1" + b"+1" * 100_000, 1, "is nested too deeply"),
    ("a_py", b"-" * 100_000 + b"1", 1, "is nested too deeply"),
    ("a_py", b"a" + b"()" * 100_000, 1, "is nested too deeply"),
    ("a_py", b"(" * 1_000 + b")" * 1_000, 1, "is not Python 3: too many nested parentheses"),
    ("a_py", b"#" * (MAX_FILE_BYTES + 1), 1, "is too large; allowed are 2000000 bytes"),
    ("a_yaml", LAUGHS.encode(), 7, "is too large; allowed are 50 levels, 5000000 values"),
    ("a_yaml", b"a: " + b"[" * 1_000, 1, "is nested too deeply; allowed are 50 levels"),
    ("a_yaml", b"\x01", 1, "control character '\\x01'; allowed is YAML"),
    ("a_yaml", b"a: b: c", 1, "mapping values are not allowed"),
    ("a_yaml", b"a: !!python/object/apply:os.system ['touch x']", 1, "tag 'tag:yaml.org,2002:python/object"),
    ("a_yaml", b"", 1, "is empty; allowed is a mapping of keys to values"),
    ("a_json", b'{"a":' * 1_000, 1, "is nested deeper than 50 levels"),
    ("a_json", b'{"a": 1', 1, "a comma or } is missing"),
    ("a_toml", b"x = [" + b"[" * 100_000, 1, "is nested too deeply or"),
    ("a_toml", b"x = \n", 1, "Invalid value (at line 1, column 5); allowed is TOML"),
    ("a_toml", b"x = 1" + b"0" * 5_000, 1, "is nested too deeply or holds a number without end"),
    ("a_sh", b"\xff\xfe", 1, "is not UTF-8 text; allowed is UTF-8"),
]


@pytest.mark.parametrize(("name", "content", "line", "message"), HOSTILE)
def test_what_cannot_be_understood_is_a_problem_and_no_crash(
    job: Job, name: str, content: bytes, line: int, message: str
) -> None:
    found = job("python train.py --batch-size 32", **{name: content})
    assert known(found) == {"batch_size": 32}
    assert [problem.line for problem in found.problems] == [line]
    assert found.problems[0].message.startswith(message)
    assert str(found.problems[0]).startswith(str(job.folder))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.py: file: cannot be read: No such file or directory; allowed"):
        describe([tmp_path / "gone.py"])
    with pytest.raises(InputError, match=r"model\.bin: file: is of no kind that is read; allowed are \.py, \.yaml"):
        describe([tmp_path / "model.bin"])


def test_expressions_that_double_at_every_step_are_given_up(job: Job) -> None:
    doubling = "".join(f"x{at} = x{at + 1} + x{at + 1}\n" for at in range(40))
    assert known(job(a_py=doubling + "x40 = 1\nbatch_size = x0\n")) == {}
    assert known(job(a_py='s = "ab" * 1000000000\nmodel = s\nbatch_size = 10**10 * 10**10\n')) == {}


def test_nothing_is_executed(job: Job) -> None:
    marker = job.folder / "executed"
    write = f"open({str(marker)!r}, 'w').write('x')"
    source = (
        f"{write}\nimport os\nos.system('touch {marker}')\nclass A:\n    {write}\n"
        f"def f(x={write}): pass\nbatch_size = eval({write!r}) or 3\n"
    )
    shell = f"touch {marker}; python train.py --batch-size $(touch {marker}) --model `touch {marker}`\n"
    found = job(shell, train_py=source, run_sh=shell, c_yaml=f"a: '{write}'")
    assert not marker.exists()
    assert found.batch_size is None


def test_text_holds_imports_names_strings_and_settings_and_is_bounded(job: Job) -> None:
    found = job("python t.py --lr 3", a_py="import torch.nn\ndef train_step(): return 'hello world'\n")
    assert found.text == "lr=3 torch.nn train_step hello world python t.py --lr".replace(" --lr", " lr")
    long = job(a_py="\n".join(f"name_{at} = {at}" for at in range(2_000)))
    assert len(long.text) <= MAX_CHARACTERS
    broken = job(a_py="import torch\nprint 'resnet50'")
    assert broken.text == "import torch print resnet50"


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["py", "yaml", "json", "toml", "sh"]), st.text(max_size=80))
def test_no_bytes_crash_a_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str, line: str) -> None:
    path = tmp_path_factory.mktemp("any") / f"a.{suffix}"
    path.write_bytes(data)
    found = describe([path], f"python {line}")
    assert found == describe([path], f"python {line}")
    assert {each.field for each in found.evidence} == set(known(found))


def test_the_cache_goes_by_content(tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("batch_size = 32")
    second.write_text("batch_size = 32")
    cache = DescriptionCache(tmp_path / "cache.json")
    described = describe([first], cache=cache)
    cache.save()
    again = DescriptionCache(tmp_path / "cache.json")
    assert describe([first], cache=again) == described
    # The same bytes under another name are known, and their evidence bears the new name.
    assert describe([second], cache=again).evidence[0].file == str(second)
    assert len(again) == 1
    describe([first], "python a.py --epochs 3", cache=again)
    first.write_text("batch_size = 33")
    assert describe([first], cache=again).batch_size == 33
    assert len(again) == 3


DAMAGE = [
    b"", b"{", b"[]", b"\xff", b'{"schema_version": 0, "entries": {}}', b'{"schema_version": 1, "entries": []}',
    b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_counts_as_empty(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "cache.json"
    path.write_bytes(damage)
    cache = DescriptionCache(path)
    assert len(cache) == 0
    cache.save()
    assert json.loads(path.read_bytes()) == {"schema_version": 1, "entries": {}}


@pytest.mark.parametrize(
    ("field", "value"),
    [("batch_size", "32"), ("batch_size", True), ("evidence", [{"x": 1}]), ("evidence", 3),
     ("evidence", [{"field": "model", "file": "7", "line": 1}]),
     ("evidence", [{"field": "model", "file": [], "line": 1}]), ("text", None),
     ("precision", "fp17"), ("unknown", 1), ("problems", [1])],
)  # fmt: skip
def test_a_damaged_entry_is_read_anew(tmp_path: Path, field: str, value: object) -> None:
    source, path = tmp_path / "a.py", tmp_path / "cache.json"
    source.write_text("batch_size = 32")
    cache = DescriptionCache(path)
    described = describe([source], cache=cache)
    cache.save()
    document = json.loads(path.read_bytes())
    next(iter(document["entries"].values()))[field] = value
    path.write_text(json.dumps(document))
    assert describe([source], cache=DescriptionCache(path)) == described
