"""Scenarios from logs: ``truenorth import FORMAT FILE... -o scenario.yaml``.

How an import flows, and where a new format joins it:

- A **format** is one file in `planner.inputs.importers.formats`, listed in that package's `FORMATS`: a `reader`, a
  frozen dataclass whose fields are the format's options (``azure-llm:decode=40ms``), made with
  `executor.policies.options.option`. What is said of it is a table of ``formats.toml``: title, source, what its mapping
  assumes (`notes`, shown in every summary and scenario), and the documented cluster (`Hardware`), which options of the
  command override.
- A reader has one method. `read(files, tally)` yields chunks: `Requests`, columns of single-task requests (release,
  model, run time, and what else the log knows), or `DagJobs`, whole DAGs (`models.Workflow`) with their releases.
- **Known sorts of logs** of the formats ``table`` and ``tokens`` are entries of two tables in `formats.shapes`: columns
  by which they are known, and what these mean.
- **Rows**: `table_rows(file, columns, tally)` yields `Rows` of CSV, whatever separates its fields, of JSON in lines,
  lists and documents, and of SWF, some 65,000 at a time, as columns of text; `csv_rows` knows files without a header,
  too. Methods of `Rows` turn text into numbers for all rows at once (`times`, `moments`, `wholes`, `numbers`, `names`);
  `rows.requests(...)` makes the chunk.
- **Entries**: what is nested is a `models.scenario.section.Record`, a pydantic type whose fields say what may stand
  there (`LogName`, `Seconds`, `Bytes`). `read_entries(texts, make, tally)` yields what `make` makes of each; the texts
  are those of lines (`json_lines`) or of a list that no memory holds (`Entries`).
- **Malformed rows**: a conversion marks what it cannot read; `rows.refuse(mask, column, problem, allowed)` does so by
  hand. After the chunk, the first of them raises `InputError` with file, line and column; where the `Tally` skips
  malformed rows, they are counted by reason instead. What is well formed but does not belong in a workload (a request
  that failed) is `rows.leave_out(mask, reason)`, which only counts. A marked row needs no care: no later conversion
  refuses it again, and `rows.requests` drops it. Of entries, `FieldError` refuses and `LeftOutError` leaves out.
- **Clocks**: a `dated` format gives releases in microseconds since 1970 (UTC), and time zero is its first request; any
  other gives them since the zero of its own clock. Windows are cut and rates are scaled after reading.
- `trace(format, files, ...)` puts it together: table, window, rate, workflows (exact run times, or classes of them),
  scenario document, and a summary before anything is planned.
"""
