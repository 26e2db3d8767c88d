"""What to do about a problem, in the words of a command or of Python.

The service says it as HTTP does: ``PUT the file to /v1/inputs/occurrence``. Whoever runs a command
or calls a method wants to know the option or the argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

Problem = Mapping[str, Any]


class _Hint(NamedTuple):
    """One hint in both forms, of the first name in a member of the problem."""

    command: str
    python: str
    member: str | None = None


_HINTS = {
    "unauthorized": _Hint("Give --key KEY, or set THALWEG_KEY", "Give the key: Client(url, key)"),
    "report": _Hint("Add --{option} FILE", "Add {name}=Path(…)", "inputs"),
    "seal-refused": _Hint(
        "Give it with thalweg run input RUN {name} FILE, then seal again",
        'Give it with client.runs.put_input(run, "{name}", Path(…)), then seal again',
        "inputs",
    ),
    "partition-taken": _Hint(
        "Replace it with --replace, or name a free one with --partition N: thalweg run status RUN"
        " tells those there are",
        "Delete it with client.runs.delete_stream(run, stream), or name a free one, partition=N",
    ),
    "Create another run": _Hint(
        "thalweg run create makes another one; thalweg run compute RUN adds reports",
        "client.runs.create(…) makes another one; client.runs.add_reports(run, …) adds reports",
    ),
    "stream-failed": _Hint(
        "Upload it anew with --replace",
        "Delete it: client.runs.delete_stream(run, stream), and upload it anew",
    ),
    "report-missing": _Hint(
        "Have it computed: thalweg run compute RUN --report {name}",
        'Have it computed: client.runs.add_reports(run, ["{name}"])',
        "reports",
    ),
    "report-not-ready": _Hint(
        "Once all streams are complete: thalweg run seal RUN",
        "Once all streams are complete: client.runs.seal(run)",
    ),
    "POST /v1/runs/{run}/reports computes these with other options": _Hint(
        "thalweg run compute RUN --report {name} takes these options",
        'client.runs.add_reports(run, ["{name}"], …) takes these options',
        "reports",
    ),
    "Open the dataset anew, and start without after": _Hint(
        "Run the command again", "Open the dataset anew: client.datasets[id]"
    ),
    "Delete the dataset first, or give another id": _Hint(
        "Delete it first: thalweg datasets delete {name}; or give another id",
        'Delete it first: client.datasets["{name}"].delete(); or give another id',
        "ids",
    ),
    "GET /v1/datasets lists those there are, POST /v1/datasets registers one": _Hint(
        "thalweg datasets list prints those there are, thalweg datasets register adds one",
        "client.datasets.list() lists those there are, client.datasets.register(…) adds one",
    ),
    "Give the run a summary_xref, which says what to add up, and upload it again": _Hint(
        "Give it: thalweg run input RUN summary_xref FILE; and upload it again",
        'Give it: client.runs.put_input(run, "summary_xref", Path(…)); and upload it again',
    ),
    "Read them with a pipeline: POST /v1/pipelines": _Hint(
        "Read them with a pipeline: thalweg batches SPEC",
        "Read them with a pipeline: client.pipeline(spec)",
    ),
    "POST these reports to the reports of the run first": _Hint(
        "Have these computed first: thalweg run compute RUN --report LIST",
        "Have these computed first: client.runs.add_reports(run, […])",
    ),
    "Read the answer faster, or post the stream in parts": _Hint(
        "Post it in smaller parts: --mode parts --part-size 1MiB",
        "Post it in smaller parts: part_size=1 << 20",
    ),
    "Name one by set=": _Hint("Name some by --sets LIST", "Name one: set=1"),
    "Register the pipeline it belongs to and use its id": _Hint(
        "Give the spec that it is of, unchanged, or begin without it",
        "Give the spec that it is of, unchanged, or begin with after=None",
    ),
    "Give currency": _Hint("Give --currency CODE", 'Give currency="EUR", or the like'),
    "Add summary_xref= with the digest of an input": _Hint(
        "Add --summary-xref FILE", "Add summary_xref=Path(…)"
    ),
    "GET /v1/portfolios/loss-sets lists those there are": _Hint(
        "thalweg portfolio list prints those there are; several ids are apart by blanks",
        "client.portfolios.list() lists those there are",
    ),
    "POST it to /v1/pipelines": _Hint(
        "thalweg pipelines list prints those there are, thalweg pipelines register SPEC adds one",
        "client.pipelines() lists those there are, client.pipeline(spec) adds one",
    ),
}
"""By the code of the problem, or by the hint where one code is of many problems."""
_NO_ROUTE = frozenset({"Not Found", "HTTP status 404"})
"""Details of answers that know no such path, by our service and by others."""
_VALUE = re.compile(
    r"\b(apart|casting|dispersion|format|nan|negative|no_of_periods|over_bound|pairing_seed|periods"
    r"|repeated|result|samples?|sample_order|scale|sets?|world)=(\w*)(?!…)"
)
_RATE = re.compile(r'\{"rates": \{"([A-Z]{3})": …\}\}')
_TABLE = re.compile(r'\{"table": "(\w+)"\}')
_REPEAT = re.compile(r'\{"id": "([^"]+)", "samples": "repeat"\}')


def _reworded(hint: str, *, command: bool) -> str:
    if command and "without after" in hint:
        return "Start over without the state or token file"
    # Frames are how this package reads several sets.
    hint = hint.removesuffix(", or use format=frames")
    if command:
        hint = _REPEAT.sub(r"--repeat \1", hint)
    hint = _TABLE.sub(r"--table \1" if command else r'table="\1"', hint)
    hint = _RATE.sub(r"--rate \1=…" if command else r'rates={"\1": …}', hint)
    return _VALUE.sub(_as_option if command else _as_argument, hint)


def _as_option(value: re.Match[str]) -> str:
    name = "sets" if value[1] == "set" else value[1].replace("_", "-")
    if value[2] == "true":
        return f"--{name}"
    return f"--{name} {value[2]}".rstrip()


def _as_argument(value: re.Match[str]) -> str:
    if not value[2] or value[2].isdecimal():
        return f"{value[1]}={value[2] or '…'}"
    if value[2] == "true":
        return f"{value[1]}=True"
    return f'{value[1]}="{value[2]}"'


def hint_of(problem: Problem, *, command: bool = False) -> str | None:
    """The hint of a problem document, for a command or for Python where that differs."""
    own: str | None = problem.get("hint")
    if own is not None and own.startswith("PUT the file to"):
        return "Give a file as a Path; text is a digest"
    if problem.get("detail") in _NO_ROUTE:
        name = "--url" if command else "the url"
        return f"There is no such route: is {name} that of a service, without /v1 at its end?"
    hint = _HINTS.get(str(own)) or _HINTS.get(str(problem.get("code")))
    if hint is None:
        return own and _reworded(own, command=command)
    if problem.get("state") == "failed":
        return own  # what has failed is not waited for: the service says what to do instead
    names = [""] if hint.member is None else problem.get(hint.member)
    if not isinstance(names, list) or not names:
        return own and _reworded(own, command=command)
    name = str(names[0])
    form = hint.command if command else hint.python
    return form.format(name=name, option=name.replace("_", "-"))
