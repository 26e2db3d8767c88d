"""The scripts of a run: the lines that read its streams and wait for everything, and processes.

A script is oasislmf's, made with settings that have no summaries, so that it ends where the
streams of items begin. Readers are started after the fifos have been made and before anything
writes to them. Then every process is waited for, not the last alone. The script itself is run to
its end, whatever happens, and one at a time in a directory.
"""

import contextlib
import fcntl
import glob
import logging
import os
import pathlib
import re
import shlex
import signal
import subprocess
import threading

from oasislmf.execution import bash

try:
    from oasislmf.execution.resource_monitor import ResourceMonitor
except ImportError:  # before 2.5
    ResourceMonitor = None

OPTIONS = "THALWEG_AGGREGATE_OPTIONS"
"""Variable with further options of ``aggregate``, such as ``--memory-budget 4GB``."""
IDLE_SECONDS = 24 * 3600
"""Without a byte for so long, a stream counts as dead. Processes that end are noticed at once."""
STARTS = re.compile(r"&( *\w+=\$!)? *$")
"""The end of a line that starts a process, and may keep its id."""
PERSPECTIVES = ("gul", "il", "ri", "rl")

logger = logging.getLogger("oasislmf.thalweg")


def aggregate_command(server):
    """The command of all processes that read or write a run directory."""
    command = [server, "aggregate", "--run-dir", ".", "--log-file", "-", "--no-progress"]
    return command + shlex.split(os.environ.get(OPTIONS, ""))


def flags(params):
    """Options of ``aggregate`` for arguments of a run."""
    return ["--join-summary-info"] if params.get("join_summary_info") else []


def keep_ids(filename):
    """Have a script keep the ids of all that it starts, and the lines where it does.

    It forgets those of load balancers, and of what feeds them.
    """
    path = pathlib.Path(filename)
    before, mark, text = path.read_text().partition(WAITING)
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if STARTS.search(line):
            kept = "" if lines[i + 1].startswith("thalweg_pids") else " thalweg_others+=($!);"
            join = kept if line.rstrip().endswith("&") else ";"
            lines[i] += f"{join} thalweg_lines[$!]=$LINENO"
    path.write_text(before + mark + "\n".join(lines))


class Streams:
    """Streams of items of a run, or of one chunk of it.

    Args:
        params: arguments of the script.
        settings: of the analysis.
    """

    def __init__(self, params, settings):
        self._params = params
        self._settings = settings
        self._layers = params["num_reinsurance_iterations"]
        self.chunk = params.get("process_number")
        self._gul, self._fm, self._balanced = self._partitions()

    def _partitions(self):
        """Numbers of streams of gul, and of those after it; whether events change streams there."""
        params = self._params
        processes = params["max_process_id"]
        gul_size, fm_size = params.get("num_gul_per_lb") or 0, params.get("num_fm_per_lb") or 0
        later = params["il_output"] or params["ri_output"]
        if not (gul_size and fm_size and later) or self.chunk is not None:
            return processes, processes, False
        block = gul_size + fm_size * (2 if params["ri_output"] else 1)
        balancers = (processes - 1) // block + 1
        return balancers * gul_size, balancers * fm_size, True

    @property
    def perspectives(self):
        """Perspectives that have outputs."""
        return [name for name in PERSPECTIVES if self._params.get(f"{name}_output")]

    def partitions(self, perspective):
        """Number of partitions of a perspective, those of other chunks included."""
        return self._gul if perspective == "gul" else self._fm

    def ascend(self, perspective):
        """Whether events come in their order in each partition."""
        shuffled = self._balanced and perspective != "gul"
        return not shuffled and self._params.get("kat_sort_by_event", True)

    def fifos(self, perspective, folder):
        """Name, partition and fifo of each stream of a perspective."""
        numbers = range(1, self.partitions(perspective) + 1)
        for name, consumer in self._names(perspective):
            for number in numbers if self.chunk is None else [self.chunk]:
                yield name, number, bash.get_fifo_name(folder, perspective, number, consumer)

    def _names(self, perspective):
        """Names of the losses of a perspective, and what their fifos have for them."""
        if perspective == "ri":
            found = bash.get_ri_inuring_priorities(self._settings, self._layers)
        elif perspective == "rl":
            found = bash.get_rl_inuring_priorities(self._layers)
        else:
            return [(perspective, "")]
        texts = [entry["text"].rstrip("_") for entry in found]
        return [(f"{perspective}_{text}" if text else perspective, text) for text in texts]


def start_reader(filename, command, confirm=os.devnull):
    """Write the line of a script that starts a reader of streams.

    Args:
        filename: of the script.
        command: words of the command.
        confirm: fifo to which the script writes when all writers have ended well.
    """
    bash.print_command(filename, f"( {shlex.join(command)} ) 2>> $LOG_DIR/stderror.err &")
    fifo = shlex.quote(confirm)
    bash.print_command(filename, f"thalweg_pids+=($!); thalweg_confirms+=({fifo})")


class Readers:
    """Processes that aggregate the streams of a run here, one for each perspective.

    Args:
        params: arguments of the script.
        streams: of the run.
        server: path of ``thalweg-server``.
    """

    def __init__(self, params, streams, server):
        self._params = params
        self._streams = streams
        self._server = server

    def start(self, filename):
        """Write the lines that start them."""
        folders = [(self._params["fifo_queue_dir"], "output")]
        if self._params.get("full_correlation"):
            full = (self._params["fifo_full_correlation_dir"], "output/full_correlation")
            folders.append(full)
        for fifos, out in folders:
            for perspective in self._streams.perspectives:
                self._start_one(filename, perspective, fifos, out)

    def _start_one(self, filename, perspective, fifos, out):
        chunk = self._streams.chunk
        confirm = f"{fifos}thalweg_{perspective}_P{chunk or 0}"
        command = [*aggregate_command(self._server), "--confirm", confirm, *flags(self._params)]
        command += ["--idle-timeout", str(IDLE_SECONDS), "--run-out", out]
        if chunk is not None:
            command += ["--chunk", f"{chunk}/{self._params['max_process_id']}"]
            command += ["--work-dir", self._params["work_dir"]]
        if not self._streams.ascend(perspective):
            command += ["--unsorted"]
        for name, _, fifo in self._streams.fifos(perspective, fifos):
            command += ["--stream", f"{name}={fifo}"]
        bash.print_command(filename, f"mkfifo {shlex.quote(confirm)}")
        start_reader(filename, command, confirm)


NOTES = "thalweg_ended"
"""File in the log of a script: a line number, and the statuses of the commands that ended there."""

WAITING = r"""
# --- Wait for every process, and complete the outputs only when all have ended well ---
thalweg_confirms=() thalweg_pids=() thalweg_others=() thalweg_running=() thalweg_lines=()
thalweg_notes=${LOG_DIR:-log}/thalweg_ended
mkdir -p "${thalweg_notes%/*}"

# A pipeline that fails notes the status of each of its commands, and is waited for; it does not
# kill all others before they can say why.
trap 'echo "$LINENO ${PIPESTATUS[*]}" >> "$thalweg_notes"' ERR
# Whatever the last command said, a run that is told to stop has failed.
trap 'thalweg_stop "[ERROR] the run was told to stop: stderror.err in its log says why" 143 300' \
    TERM HUP INT QUIT

thalweg_stop(){
    trap '' TERM HUP INT QUIT
    # Whoever died in a pipeline is known when all of it has ended; it notes that twice, as it is
    # in two shells. A reader whose stream ends notices first.
    local i pid alive notes
    for ((i = 0; i < $3; i++)); do
        alive=0
        for pid in "${thalweg_running[@]}"; do
            # Readers wait for the word, which does not come any more.
            case " ${thalweg_pids[*]} " in *" $pid "*) continue;; esac
            if kill -0 "$pid" 2>/dev/null; then alive=1; fi
        done
        notes=()
        if [ -f "$thalweg_notes" ]; then mapfile -t notes < "$thalweg_notes"; fi
        if [ "$i" -ge 3 ] && { [ "$alive" -eq 0 ] || [ "${#notes[@]}" -ge 2 ]; }; then break; fi
        sleep 0.1
    done
    echo "$1"
    exit "$2"
}

thalweg_wait(){
    # Until these have ended; a status that is not 0, of any process, ends the run. "wait -n"
    # would forget those that a signal has killed before it is called.
    local left=1 pid status running patience
    while [ "$left" -gt 0 ]; do
        left=0
        running=()
        for pid in "${thalweg_running[@]}"; do
            if kill -0 "$pid" 2>/dev/null; then
                running+=("$pid")
                case " $* " in *" $pid "*) left=$((left + 1));; esac
            else
                status=0
                wait "$pid" || status=$?
                if [ "$status" -ne 0 ]; then
                    echo "${thalweg_lines[$pid]:-0} $status" >> "$thalweg_notes"
                    case " ${thalweg_pids[*]} " in *" $pid "*) patience=300;; *) patience=20;; esac
                    thalweg_stop "[ERROR] process $pid ended with status $status" 1 "$patience"
                fi
            fi
        done
        thalweg_running=("${running[@]}")
        if [ "$left" -gt 0 ]; then sleep 0.1; fi
    done
}

exec_wait(){
    local fifo
    set -- "$@" "${thalweg_others[@]}"
    thalweg_running=("$@" "${thalweg_pids[@]}")
    thalweg_wait "$@"
    if [ -n "${pid0:-}" ] && ! kill -0 "$pid0" 2>/dev/null; then
        thalweg_stop "[ERROR] oasis_exec_monitor.sh, which watches for errors, has ended" 1 20
    fi
    for fifo in "${thalweg_confirms[@]}"; do
        # Opened for both, a fifo whose reader has died does not block.
        echo complete 1<> "$fifo"
    done
    thalweg_wait "${thalweg_pids[@]}"
}
"""


SIGNALLED = 128
"""What the shell adds to the number of a signal that ended a process."""
DONE = "[OK] Thalweg"
"""Said at the end of a script: without it the run has failed, whatever its status."""


def execute(filename, log_folder, interval):
    """Run a script to its end, logging what it says; return that.

    Raises:
        CalledProcessError: it failed; ``output`` is bytes, as Oasis needs it.
    """
    monitor = None
    if ResourceMonitor is not None:
        monitor = ResourceMonitor(output_dir=log_folder, poll_interval=interval)
    command = ["bash", filename]
    said = bytearray()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        if monitor is not None:
            monitor.start(process.pid)
        relay = threading.Thread(target=log_lines, args=(process.stdout, said), daemon=True)
        relay.start()
        process.wait()
    finally:
        # Whatever is left of a run that failed: nothing reads or feeds it any more.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        relay.join(10)
        if not relay.is_alive():
            process.stdout.close()
        if monitor is not None:
            monitor.stop()
    if process.returncode != 0 or DONE.encode() not in said:
        for pattern in ("output", "*.work", "output/full_correlation"):
            for path in glob.glob(f"{pattern}/**/.*.partial", recursive=True):
                pathlib.Path(path).unlink(missing_ok=True)
        for line in who_ended(filename, log_folder, process.returncode, bytes(said)):
            logger.error("%s", line)
            said += f"[ERROR] {line}\n".encode()
        raise subprocess.CalledProcessError(process.returncode or 1, command, output=bytes(said))
    return said.decode(errors="replace")


def who_ended(filename, log_folder, returncode, said):
    """What made a script fail: processes, how they ended, and their commands.

    When one is killed, those that feed or read it fail too, by signal 13 or with a status of their
    own; then it alone counts.

    Args:
        filename: of the script.
        log_folder: where it has left NOTES: line numbers, and statuses of the commands there.
        returncode: of the script.
        said: what it has written to standard output.
    """
    notes = os.path.join(log_folder, NOTES)
    found: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for line in pathlib.Path(notes).read_text().splitlines():
            number, *statuses = map(int, line.split())
            # The shell around a pipeline notes one status, the pipeline that of each command.
            found[number] = max(found.get(number, []), statuses, key=len)
    lines = ["", *pathlib.Path(filename).read_text().splitlines()]
    ended = []
    for number, statuses in found.items():
        commands = commands_of(lines[number])
        if len(commands) != len(statuses):
            commands = [lines[number].strip()] * len(statuses)
        ended += [(s, c) for s, c in zip(statuses, commands, strict=True) if s != 0]
    # Oasis' handler of errors kills the script at last, too.
    if returncode < 0 and not ended:
        script = f"bash {filename}"
        handled = re.search(rb"rror - exitcode=(\d+)", said)
        if handled is None:
            return [told(returncode, script, "the script of the run")]
        line = told(int(handled[1]), script, "a command of the script of the run")
        return [f"{line} (its message is in {log_folder}/stderror.err)"]
    killed = [(s, c) for s, c in ended if s > SIGNALLED and s != SIGNALLED + signal.SIGPIPE]
    return [told(s, c) for s, c in killed or ended]


def commands_of(line):
    """The commands of a pipeline, without the shells around it."""
    commands = line.split(" | ")
    commands[0] = commands[0].lstrip("({ ")
    commands[-1] = re.split(r"\s*[;)}\s]*\)\s*(?:2>|&)|\s&(?:\s|$)", commands[-1])[0]
    return [command.strip() for command in commands]


def told(status, command, name=None):
    """A sentence about the end of a process, whose status may tell the number of a signal."""
    status = SIGNALLED - status if status > SIGNALLED else status
    name = name or os.path.basename((command.lstrip("({ ").split() or ["a process"])[0])
    ending = f"ended with status {status}"
    if status < 0:
        ending = f"was killed by signal {-status} ({signal.Signals(-status).name})"
    return f"{name} {ending}, so no stream after it is complete: {command}"


def log_lines(file, said):
    """Log lines as they come, and collect them."""
    for line in file:
        said += line
        logger.info(line.decode(errors="replace").rstrip())


@contextlib.contextmanager
def locked(name):
    """Hold a lock of the run directory, which is the working directory.

    Raises:
        RuntimeError: another run has it.
    """
    fd = os.open(f".thalweg-{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise RuntimeError(f"another run uses this directory: {os.getcwd()}") from e
        yield
    finally:
        os.close(fd)
