#!/usr/bin/env bash
# The 22 queries of TPC-H on the CPU and with the GPU, which must agree.
#
#   benches/gpu/tpch.sh [VECTILE [SCALE [DIR]]]
#
# VECTILE is the binary (default: target/release/vectile), SCALE the scale factor (default 10), DIR
# where the tables go, and stay, if they are not there yet. Each query runs four times in one process;
# the median of the last three counts. Then: what of its plan is on the GPU. Exits with 1 if an answer
# differs. QUERIES="1 6" runs only these.
set -euo pipefail
vectile=$(realpath "${1:-target/release/vectile}")
scale=${2:-10}
data=${3:-target/tpch-$scale}
queries=$(cd "$(dirname "$0")/../../sql-tests/tpch" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -f "$data/lineitem.vectile" ] || "$vectile" gen tpch --scale "$scale" --out "$data" --quiet
tables=()
for file in "$data"/*.vectile; do tables+=(-t "$(basename "$file" .vectile)=$file"); done

different=0
printf '%-5s %10s %10s %7s  %10s %6s\n' query 'cpu, ms' 'gpu, ms' ratio aggregates scans
for number in ${QUERIES:-$(seq 1 22)}; do
    query=$(sed 's/;[[:space:]]*$//' "$queries/q$number.sql")
    for mode in off auto; do
        {
            echo "set vectile.gpu = '$mode'; set vectile.gpu.min_rows = 1;"
            for _ in 1 2 3 4; do echo "$query;"; done
        } >"$work/script.sql"
        "$vectile" sql --timing "${tables[@]}" --format csv -f "$work/script.sql" \
            >"$work/$mode.csv" 2>"$work/$mode.log"
        # statements 1 and 2 are the settings, 3 is the first run
        awk '/^statement/ { print $3 }' "$work/$mode.log" | tail -n 3 | sort -n | sed -n 2p >"$work/$mode"
    done
    cmp -s "$work/off.csv" "$work/auto.csv" || { different=1; echo "query $number: answers differ"; }
    echo "set vectile.gpu.min_rows = 1; explain $query" >"$work/script.sql"
    "$vectile" sql "${tables[@]}" -f "$work/script.sql" >"$work/plan"
    awk -v q="$number" -v a="$(grep -c GpuAggregateExec "$work/plan")" -v s="$(grep -c ' gpu=' "$work/plan")" \
        '{ t[NR] = $1 } END { printf "%-5s %10.1f %10.1f %7.2f  %10d %6d\n", q, t[1], t[2], t[1] / t[2], a, s }' \
        "$work/off" "$work/auto"
done
exit $different
