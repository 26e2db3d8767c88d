#!/usr/bin/env bash
# Make a loss stream, look at it, report on it, then cut it and see the cut refused.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
run() { printf '\033[2m$ thalweg-server %s\033[0m\n' "${*//$work/DIR}"; thalweg-server "$@"; }

say "A portfolio's summary stream with its auxiliary files, as a model run leaves them"
run sample --events 2000 --summaries 20 --samples 500 --out "$work/run" | sed "s|$work|DIR|"

say "What is in it"
run inspect "$work/run/summary.bin" | sed "s|$work|DIR|"

say "Four reports in one pass, declared complete by its number of events"
run aggregate "$work/run/summary.bin" --reports events,selt,melt,qelt \
    --quantiles "$work/run/input/quantile.bin" --occurrence "$work/run/input/occurrence.bin" \
    --expect-events 2000 --out "$work/reports" 2>&1 | sed "s|$work|DIR|"
for report in events melt qelt; do
    printf '\n%s.csv, %s rows\n' "$report" "$(($(wc -l < "$work/reports/$report.csv") - 1))"
    head -4 "$work/reports/$report.csv"
done

say "The same stream, cut in the middle of a block by a broken connection"
head -c 40000001 "$work/run/summary.bin" > "$work/cut.bin"
if run aggregate "$work/cut.bin" --reports melt --out "$work/cut" 2>&1 | sed "s|$work|DIR|"; then
    echo "The cut stream was accepted: that is a defect." >&2
    exit 1
fi
if [ -e "$work/cut/melt.csv" ]; then
    echo "A partial report was left behind: that is a defect." >&2
    exit 1
fi
echo "Exit code 1, and no report that looks whole was left behind."

say "Next"
cat <<'TEXT'
.venv/bin/thalweg-server sample --out run --events 5000
.venv/bin/thalweg-server aggregate run/summary.bin --reports melt,qelt --quantiles 0.5,0.9,0.99 \
    --format parquet --out reports
mkfifo a b    # and write partitions into them: they are read as they come
.venv/bin/thalweg-server aggregate a b --reports melt --order event --out reports
.venv/bin/thalweg-server aggregate --help
TEXT
