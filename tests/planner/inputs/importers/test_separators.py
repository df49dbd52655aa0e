"""What separates the fields of CSV is told by the header, whatever the format."""

from __future__ import annotations

from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers import test_acme, test_alibaba_gpu_2023, test_gangs, test_helios
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import AZURE, GENTD26, UPDATES, written
from truenorth.models.scenario import InputError
from truenorth.planner.inputs.estimate.table import columns_of

LOGS = {
    "gentd26": GENTD26,
    "azure-llm": AZURE,
    "azure-functions-2021": "app,func,end_timestamp,duration\na,f,2.5,1.5\nb,f,9,1\n",
    "alibaba-gpu-2023": test_alibaba_gpu_2023.LOG.replace("V100M16|V100M32", "T4"),
    "acme": test_acme.SEREN,
    "helios": test_helios.LOG,
    "elasticflow": test_gangs.ELASTICFLOW,
}
MARKS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


@pytest.mark.parametrize("name", LOGS)
def test_fields_may_be_separated_by_other_marks(tmp_path: Path, name: str) -> None:
    plain = tn.import_trace(name, [written(tmp_path, LOGS[name])])
    for mark, word in MARKS.items():
        made = tn.import_trace(name, [written(tmp_path, LOGS[name].replace(",", mark))])
        assert jobs(made) == jobs(plain)
        assert made.tally.notes.count(f"fields of log.csv are separated by {word}") == 1


def test_a_log_of_updates_is_known_by_its_columns(tmp_path: Path) -> None:
    logs = [written(tmp_path, GENTD26), written(tmp_path, UPDATES.replace(",", ";"), "updates.csv")]
    assert "a load takes 5.5 s" in tn.import_trace("gentd26", logs).target.words


def test_a_mark_in_quotes_separates_nothing(tmp_path: Path) -> None:
    assert columns_of(written(tmp_path, 'user,"a;b;c;d"\nann,1\n')) == ["user", "a;b;c;d"]
    assert columns_of(written(tmp_path, "user;gpus;runtime_s\nann;1;2\n")) == ["user", "gpus", "runtime_s"]


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    log = written(tmp_path, test_helios.LOG.replace("user", "owner").replace(",", ";"))
    with pytest.raises(InputError, match="has no column 'user'; its columns: job_id, owner, vc, "):
        tn.import_trace("helios", [log])
