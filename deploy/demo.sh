#!/usr/bin/env bash
# Start the service, post a loss stream through a connection that keeps breaking, and see
# that the table is the one an unbroken run makes.
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
# The address in a log, once it is there.
address() {
    for _ in $(seq 300); do
        sed -n 's/^listening on //p' "$1" | grep . && return
        sleep 0.1
    done
    cat "$1" >&2
    exit 1
}

say "A portfolio's summary stream with its auxiliary files, as a model run leaves them"
run thalweg-server sample --events 2000 --summaries 20 --samples 500 --out "$work/run" \
    | sed "s|$work|DIR|"

say "The service"
show thalweg-server serve --port 0 --data-dir "$work/data"
thalweg-server serve --port 0 --data-dir "$work/data" 2>"$work/server.log" &
server=$!
url=$(address "$work/server.log")
echo "serves at $url"

say "A connection that is reset after every 11 megabytes, three times"
python "$here/cutting_proxy.py" "${url#http://}" 11000000 --cuts 3 >"$work/proxy.log" &
proxy=$!
broken=$(address "$work/proxy.log")

say "The stream posted through it, in parts; what was cut is sent again, nothing else"
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

say "Half of the stream as a part: the answer has a token, from which any server goes on"
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

say "The same half passed off as whole: refused, with the byte and the event"
if run thalweg post "$work/half.bin" --report melt --url "$url" -o "$work/cut.csv" --no-progress 2>"$work/refusal"; then
    echo "A cut stream was accepted: that is a defect." >&2
    exit 1
fi
sed "s|$work|DIR|" "$work/refusal"
if [ -e "$work/cut.csv" ]; then
    echo "A table that looks whole was left behind: that is a defect." >&2
    exit 1
fi

say "SIGTERM: what runs is finished, then the service ends"
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
xdg-open http://localhost:8000/docs
.venv/bin/thalweg-server aggregate run/summary.bin --reports melt --out reports    # no service
TEXT
