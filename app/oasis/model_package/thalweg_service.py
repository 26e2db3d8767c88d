"""Runs of a service that compute the outputs of an Oasis run.

With THALWEG_OASIS_URL set, the streams of items are uploaded instead of aggregated here::

    evepy | gulmc | tee gul_P1 | fmpy > il_P1           for each process, on each machine
                        |            |
             thalweg run upload   thalweg run upload    to one run for gul, one for il, ...
                        v            v
                       seal, fetch, aggregate --tables --> output/

A stream has no end marker, so an upload is complete when its fifo ends, whether or not the process
that wrote it was killed. What counts is therefore said later: a run is sealed only after every
process of the script has ended well, and the streams of a chunk count only if the chunk has left
its description in its work folder, which is written after all of its processes.

Chunks are computed by machines that know nothing of each other. All of them create their runs under
the same Idempotency-Key, which follows from settings, inputs and the number of chunks; a run that
is sealed already is of an earlier, equal analysis, and the next key is tried. The descriptions name
run and stream of each upload, and the outputs are written only if all name the same runs, and
these have exactly those streams.
"""

import contextlib
import hashlib
import itertools
import json
import logging
import os
import pathlib
import secrets
import shlex
import shutil
import subprocess

from .thalweg_script import OPTIONS as AGGREGATE_OPTIONS
from .thalweg_script import aggregate_command, flags, start_reader

URL = "THALWEG_OASIS_URL"
"""Variable with the address of the service; the key is in THALWEG_KEY."""
OPTIONS = "THALWEG_OASIS_OPTIONS"
"""Variable with further options of ``thalweg run`` commands, such as ``--timeout 60``."""
NAME = "THALWEG_OASIS_RUN"
"""Variable with a name that tells two equal analyses apart, which run in chunks at one time."""
RETRIES = "100"
"""Failures in a row that uploads and downloads tolerate: about twenty minutes without a service."""
OPEN_STATES = ("created", "uploading", "failed")
TABLES = "thalweg_tables"
DIFFERING_EVENTS = "--differing-events"
"""Among the options of ``aggregate``: accept perspectives that differ in their number of events."""

logger = logging.getLogger("oasislmf.thalweg")


class Commands:
    """The commands that talk to the service, and the plan.

    Args:
        client: path of ``thalweg``, or None.
        server: path of ``thalweg-server``.
        url: of the service.
    """

    def __init__(self, client, server, url):
        if client is None:
            raise RuntimeError(f"{URL} is set, but there is no thalweg command beside {server}")
        self._client = client
        self._server = server
        self._url = url

    def words(self, action, *arguments):
        """A command of ``thalweg run``."""
        options = shlex.split(os.environ.get(OPTIONS, ""))
        return [self._client, "run", action, "--url", self._url, *arguments, *options]

    def run(self, action, *arguments):
        """Run one of them; return what it prints."""
        return call(self.words(action, *arguments))

    def aggregate(self, *arguments):
        """Run ``aggregate``; return what it prints."""
        return call([*aggregate_command(self._server), *arguments])


def call(command):
    """Run a command; return what it prints.

    Raises:
        CalledProcessError: it failed; ``output`` is what it said, in bytes, as Oasis needs it.
    """
    result = subprocess.run(command, capture_output=True, check=False)
    if result.returncode != 0:
        said = result.stderr + result.stdout
        logger.error("%s", said.decode(errors="replace").rstrip())
        raise subprocess.CalledProcessError(result.returncode, command, output=said)
    return result.stdout.decode()


class ServiceRuns:
    """The runs of a service that an Oasis run, or a chunk of it, uploads to.

    Args:
        commands: that talk to the service.
        params: arguments of the script.

    Raises:
        CalledProcessError: settings or inputs ask for what a service cannot compute.
    """

    def __init__(self, commands, params):
        if params.get("full_correlation"):
            raise RuntimeError(f"full_correlation: its losses are not uploaded; unset {URL}")
        self._commands = commands
        self._params = params
        self._chunks = params["max_process_id"]
        self._flags = flags(params)
        # The last line; those before it are of the log.
        plan = json.loads(commands.aggregate("--service-plan", *self._flags).splitlines()[-1])
        for ignored in plan["ignored"]:
            logger.warning("there is no such output any more: %s", ignored)
        self._sorted = plan["sorted"]
        self._plans = {run["name"]: run for run in plan["runs"]}
        self._ids = {}
        self._streams = None
        self._keeps = False

    # -- before losses are computed -----------------------------------------------------

    def create(self, streams):
        """Create the runs, or find those that another chunk has created."""
        self._streams = streams
        for name, plan in self._plans.items():
            perspective = plan["perspective"]
            in_order = self._sorted and streams.ascend(perspective)
            arguments = [*plan["create"], "--order", "event" if in_order else "received"]
            arguments += ["--partitions", str(streams.partitions(perspective))]
            if streams.chunk is None:
                key = secrets.token_hex(16)
                self._ids[name] = self._commands.run(
                    "create", *arguments, "--idempotency-key", key
                ).strip()
            else:
                self._ids[name] = self._shared(plan, arguments)
            logger.info("%s is uploaded to run %s", name, self._ids[name])
        if streams.chunk is not None:
            self._description.unlink(missing_ok=True)

    def _shared(self, plan, arguments):
        """The run that all chunks of this analysis upload to."""
        named = os.environ.get(NAME) or self._params.get("analysis_pk") or "analysis"
        facts = (plan["digest"], self._chunks, named)
        keys = (hashlib.sha256(repr((*facts, n)).encode()).hexdigest() for n in itertools.count())
        runs = (
            self._commands.run("create", *arguments, "--idempotency-key", key).strip()
            for key in keys
        )
        return next(run for run in runs if self._status(run)["state"] in OPEN_STATES)

    def _status(self, run):
        return json.loads(self._commands.run("status", run, "--json"))

    def start(self, filename):
        """Write the lines of a script that start the uploads, one process for each stream."""
        folder = self._params["fifo_queue_dir"]
        for perspective in self._streams.perspectives:
            for name, partition, fifo in self._streams.fifos(perspective, folder):
                if name not in self._plans:
                    raise RuntimeError(f"{name} is computed, but the settings ask for no output")
                # Emptied when the script begins: what has failed is begun anew, not continued.
                state = os.path.join("log", str(self._streams.chunk or ""), f"{name}_P{partition}")
                options = ["--partition", str(partition), "--replace", "--state", state, "--quiet"]
                words = [self._ids[name], fifo, *options, "--retries", RETRIES]
                command = self._commands.words("upload", *words)
                start_reader(filename, command)

    # -- after losses have been computed -------------------------------------------------

    def abandon(self):
        """Delete what has been uploaded by processes that failed, if the service can be reached."""
        if self._keeps:
            return
        for run in self._ids.values():
            with contextlib.suppress(subprocess.CalledProcessError):
                self._commands.run("delete", run, "--retries", "0")

    @property
    def _description(self):
        folder = pathlib.Path(self._params["work_dir"])
        return folder / f"thalweg_service_P{self._streams.chunk}.json"

    def describe_chunk(self):
        """Leave run and stream of each upload in the work folder of the chunk."""
        chunk = self._streams.chunk
        uploads = {}
        for name, run in self._ids.items():
            (stream,) = [s for s in self._status(run)["partitions"] if s["partition"] == chunk]
            uploads[name] = {"run": run, "stream": stream["id"], "bytes": stream["offset"]}
        part = self._description.with_suffix(".partial")
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"chunk": chunk, "chunks": self._chunks, "uploads": uploads}))
        part.replace(self._description)

    def find(self, work):
        """Find the runs of all chunks, from the descriptions in their merged work folders.

        Raises:
            RuntimeError: a chunk is missing, of another run, or its stream is not the run's.
        """
        found = [self._read(work, chunk) for chunk in range(1, self._chunks + 1)]
        for name in self._plans:
            uploads = [uploads.get(name) for uploads in found]
            runs = {upload["run"] if upload else None for upload in uploads}
            if len(runs) != 1 or None in runs:
                raise RuntimeError(f"the chunks of {name} are of several runs: compute them again")
            (run,) = runs
            streams = {s["partition"]: s["id"] for s in self._status(run)["partitions"]}
            expected = {chunk: upload["stream"] for chunk, upload in enumerate(uploads, 1)}
            if streams != expected:
                raise RuntimeError(
                    f"run {run} of {name} does not have the streams that the chunks have uploaded:"
                    f" another analysis uses it; set {NAME} to tell them apart"
                )
            self._ids[name] = run

    def _check_events(self):
        """Check that no process between two perspectives has lost events.

        Oasis' tools pass every event on, with losses of 0 if need be.
        """
        events = {name: self._status(run)["events"] for name, run in self._ids.items()}
        accepted = DIFFERING_EVENTS in os.environ.get(AGGREGATE_OPTIONS, "").split()
        if len(set(events.values())) > 1 and not accepted:
            counts = ", ".join(f"{name} {count}" for name, count in events.items())
            raise RuntimeError(
                f"the perspectives have different numbers of events: {counts}. A process between"
                " them has ended early, so no output is written"
            )

    def _read(self, work, chunk):
        path = pathlib.Path(work) / f"thalweg_service_P{chunk}.json"
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError) as e:
            raise RuntimeError(f"chunk {chunk} of {self._chunks} is missing: {path}: {e}") from e
        if document["chunks"] != self._chunks:
            raise RuntimeError(f"{path} is of a run with {document['chunks']} chunks")
        return document["uploads"]

    def finish(self, work):
        """Seal the runs, fetch their tables, and write the outputs.

        Args:
            work: folder for the tables, until the outputs are written.

        Raises:
            CalledProcessError: the service found a fault, or cannot be reached.
        """
        self._keeps = True
        tables = pathlib.Path(work) / TABLES
        shutil.rmtree(tables, ignore_errors=True)
        self._check_events()
        for run in self._ids.values():
            self._commands.run("seal", run, "--no-wait", "--retries", RETRIES)
        for name, run in self._ids.items():
            self._commands.run("seal", run, "--retries", RETRIES)
            document = self._status(run)
            facts = (name, run, document["bytes"], document["events"])
            logger.info("%s: run %s is computed from %d bytes, %d events", *facts)
            self._fetch(self._plans[name], run, tables / name)
        logger.info("%s", self._commands.aggregate("--tables", str(tables), *self._flags).rstrip())
        shutil.rmtree(tables, ignore_errors=True)

    def _fetch(self, plan, run, folder):
        folder.mkdir(parents=True)
        variants = [
            self._commands.run("compute", run, *arguments, "--retries", RETRIES).strip()
            for arguments in plan["variants"]
        ]
        for table in plan["tables"]:
            arguments = ["--report", ",".join(table["reports"]), "--sets", str(table["set"])]
            if table["variant"] is not None:
                arguments += ["--variant", variants[table["variant"]]]
            arguments += ["--format", "bin", "--out", str(folder), "--quiet"]
            self._commands.run("fetch", run, *arguments, "--retries", RETRIES)
