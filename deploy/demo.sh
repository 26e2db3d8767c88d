#!/usr/bin/env bash
# Start the service, post a loss stream and read a dataset through a connection that keeps
# breaking, read batches across a kill, and check that every result equals that of an unbroken run.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
server= proxy=
stop() {
    for pid in $proxy $server; do
        kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap stop EXIT

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
show() { printf '\033[2m$ %s\033[0m\n' "${*//$work/DIR}"; }
run() { show "$@"; "$@"; }
# Print the address in a log, once it is there.
address() {
    for _ in $(seq 300); do
        sed -n 's/^listening on //p' "$1" | grep . && return
        sleep 0.1
    done
    cat "$1" >&2
    exit 1
}

say "A portfolio's summary stream with its auxiliary files, as a model run leaves them"
run thalweg-server sample --events 2000 --periods 1000 --summaries 20 --samples 500 --out "$work/run" \
    | sed "s|$work|DIR|"

say "A detector's scan: 64 x 64 positions of 128 x 128 pixels, raw 16-bit counts"
mkdir "$work/scans"
python - "$work/scans/scan.raw" <<'PYTHON'
import sys
import numpy as np
y, x = np.indices((128, 128)) - 63.5
rng = np.random.default_rng(1)
with open(sys.argv[1], "wb") as file:
    for row in range(64):
        shift = np.hypot(np.arange(64) - 32, row - 32)[:, None, None] / 4
        disk = (np.hypot(y, x - shift) < 20) * np.linspace(4, 12, 64)[:, None, None]
        file.write(rng.poisson(0.1 + disk).astype("<u2").tobytes())
PYTHON
ls -l "$work/scans" | tail -1 | awk '{print $5 " bytes, " $9}'

say "The service"
show thalweg-server serve --port 0 --data-dir "$work/data" --dataset-roots "$work/scans"
thalweg-server serve --port 0 --data-dir "$work/data" --dataset-roots "$work/scans" \
    2>"$work/server.log" &
server=$!
url=$(address "$work/server.log")
echo "serves at $url"

say "A connection that is reset after every 11 megabytes, three times"
python "$here/cutting_proxy.py" "${url#http://}" 11000000 --cuts 3 >"$work/proxy.log" &
proxy=$!
broken=$(address "$work/proxy.log")

say "The stream posted through it, in parts; only what was cut is sent again"
run thalweg post "$work/run/summary.bin" --report melt --expect-events 2000 \
    --occurrence "$work/run/input/occurrence.bin" --part-size 8MiB \
    --url "$broken" -o "$work/melt.csv" --no-progress 2>&1 | sed "s|$work|DIR|"
grep '^cut' "$work/proxy.log"
head -4 "$work/melt.csv"

say "The same table from an unbroken run of the engine"
run thalweg-server aggregate "$work/run/summary.bin" --reports melt --no-progress \
    --occurrence "$work/run/input/occurrence.bin" --out "$work/unbroken" 2>/dev/null
if ! cmp "$work/melt.csv" "$work/unbroken/melt.csv"; then
    echo "The tables differ: that is a defect." >&2
    exit 1
fi
echo "identical, byte for byte: $(wc -l <"$work/melt.csv") lines"

say "Average annual losses and exceedance curves of the run, as tables and as pictures"
run thalweg-server aggregate "$work/run/summary.bin" --reports aal,ept --no-progress \
    --occurrence "$work/run/input/occurrence.bin" --periods "$work/run/input/periods.bin" \
    --return-periods "$work/run/input/returnperiods.bin" --out "$work/annual" \
    --plot thalweg-pictures --plot-format png --plot-summaries 1-6 --force 2>/dev/null
head -4 "$work/annual/aal.csv"
for picture in aal ept; do
    echo "thalweg-pictures/$picture.png: $(wc -c <"thalweg-pictures/$picture.png") bytes"
done

say "Half of the stream as a part: the answer has a token, from which any server continues"
head -c 20000001 "$work/run/summary.bin" >"$work/half.bin"
token=$(python - "$url" "$work/half.bin" <<'PYTHON'
import sys, urllib.request
request = urllib.request.Request(
    sys.argv[1] + "/v1/losses/melt",
    open(sys.argv[2], "rb").read(),
    {"Upload-Complete": "?0", "Content-Type": "application/octet-stream"},
)
with urllib.request.urlopen(request) as answer:
    print(answer.headers["Thalweg-Token"])
PYTHON
)
run thalweg token inspect "$token" --url "$url"

say "The same half passed off as the whole: refused, with the byte and the event"
if run thalweg post "$work/half.bin" --report melt --url "$url" -o "$work/cut.csv" --no-progress 2>"$work/refusal"; then
    echo "A cut stream was accepted: that is a defect." >&2
    exit 1
fi
sed "s|$work|DIR|" "$work/refusal"
if [ -e "$work/cut.csv" ]; then
    echo "A table that looks complete was left: that is a defect." >&2
    exit 1
fi

say "The scan registered as it lies on disk; a region of it through the broken connection"
spec='{"id": "scan", "files": ["scan.raw"], "dtype": "<u2", "nav_shape": [64, 64], "sig_shape": [128, 128]}'
run thalweg datasets register "$spec" --url "$url" | sed -n 1,12p
kill "$proxy" && wait "$proxy" 2>/dev/null || true
python "$here/cutting_proxy.py" "${url#http://}" 9000000 --cuts 3 >"$work/proxy2.log" &
proxy=$!
broken=$(address "$work/proxy2.log")
run thalweg tiles scan --nav 8:56,0:64:2 --sig 16:112,16:112 --dtype '<f4' --target-bytes 1MiB \
    --url "$broken" -o "$work/region.npy" --no-progress 2>&1 | sed "s|$work|DIR|g"
grep '^cut' "$work/proxy2.log"
python - "$work/region.npy" "$work/scans/scan.raw" <<'PYTHON'
import sys
import numpy as np
region = np.load(sys.argv[1])
scan = np.fromfile(sys.argv[2], "<u2").reshape(64, 64, 128, 128)
same = np.array_equal(region, scan[8:56, ::2, 16:112, 16:112].astype("<f4"))
print(region.shape, region.dtype, "identical to numpy's slice" if same else "DIFFERENT: a defect")
sys.exit(not same)
PYTHON

say "A virtual detector's image of it"
python - "$url" "thalweg-detector.png" <<'PYTHON'
import json, sys, urllib.parse, urllib.request
reduction = {"op": "virtual", "detectors": [{"annulus": {"centre": [63.5, 63.5], "inner": 18, "outer": 30}}]}
query = urllib.parse.urlencode({"reduction": json.dumps(reduction), "map": "viridis"})
with urllib.request.urlopen(f"{sys.argv[1]}/v1/datasets/scan/image.png?{query}") as answer:
    picture = answer.read()
open(sys.argv[2], "wb").write(picture)
print(f"thalweg-detector.png: {len(picture)} bytes")
PYTHON

say "Its frames as shuffled batches for training: three of them, by one reader"
pipeline='{"order": 1, "stages": [{"op": "source", "dataset": "scan"}, {"op": "permute", "seed": 7}, {"op": "batch", "size": 500}]}'
run thalweg batches "$pipeline" -n 3 --token-file "$work/token" -o "$work/one" --url "$url" | cut -c 1-96
echo "token: $(cat "$work/token")"

say "kill -9 of the service, and another one on the same data directory"
kill -9 "$server" && wait "$server" 2>/dev/null || true
show thalweg-server serve --port 0 --data-dir "$work/data" --dataset-roots "$work/scans"
thalweg-server serve --port 0 --data-dir "$work/data" --dataset-roots "$work/scans" \
    2>"$work/server2.log" &
server=$!
url=$(address "$work/server2.log")

say "The rest of the epoch by two readers, from the same token; each gets half of every batch"
cp "$work/token" "$work/token0" && cp "$work/token" "$work/token1"
for rank in 0 1; do
    run thalweg batches "$pipeline" --rank $rank --world 2 --token-file "$work/token$rank" \
        -o "$work/rank$rank" --quiet --url "$url" | cut -c 1-96
done
python - "$work" <<'PYTHON'
import pathlib, sys
import numpy as np
work = pathlib.Path(sys.argv[1])
scan = np.fromfile(work / "scans/scan.raw", "<u2").reshape(-1, 128 * 128)
place = {frame.tobytes(): k for k, frame in enumerate(scan)}
seen = []
for k in range(9):
    parts = ["one"] if k < 3 else ["rank0", "rank1"]
    for part in parts:
        batch = np.load(work / part / f"{k:08d}.data.npy")
        seen += [place[frame.tobytes()] for frame in batch]
whole = sorted(seen) == list(range(len(scan))) and seen != sorted(seen)
print(f"{len(seen)} frames, each exactly once, shuffled" if whole else "LOST OR REPEATED: a defect")
sys.exit(not whole)
PYTHON

say "SIGTERM: the service finishes what runs, then exits"
kill "$server"
wait "$server"
echo "exit code 0"
server=

say "Next"
cat <<'TEXT'
.venv/bin/thalweg-server sample --out run --events 5000
.venv/bin/thalweg-server serve                       # then, in another terminal:
curl -T run/summary.bin localhost:8000/v1/losses/melt
curl -N -T - 'localhost:8000/v1/losses/selt?duplex=true' < run/summary.bin | head
.venv/bin/thalweg post run/summary.bin --report melt,qelt --quantiles 0.5,0.9 -o reports
.venv/bin/thalweg-server serve --dataset-roots DIR --scan  # detector files: curl localhost:8000/v1/datasets
xdg-open http://localhost:8000/docs                        # and thalweg-detector.png
xdg-open thalweg-pictures/ept.png                          # and aal.png
.venv/bin/thalweg-server aggregate run/summary.bin --reports melt --out offline    # no service
TEXT
