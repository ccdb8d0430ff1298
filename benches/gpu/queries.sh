#!/usr/bin/env bash
# Whole queries through SQL on a GPU, beside the CPU: TPC-H Q6 and other queries over `lineitem`.
#
#   benches/gpu/queries.sh [VECTILE [SCALE [DIR]]]
#
# VECTILE is the binary (default: target/release/vectile), SCALE the scale factor (default 100: 600 M
# rows, 23 GB on disk), DIR where the tables go, and stay, if they are not there yet. Prints the first
# run of a fresh process with an empty kernel cache, then with the cache on disk, then the median of
# warm runs; each as `vectile sql --timing` takes it, from the statement's text to its last row.
set -euo pipefail
vectile=${1:-target/release/vectile}
scale=${2:-100}
data=${3:-target/tpch-$scale}
runs=11
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
[ -f "$data/lineitem.vectile" ] || "$vectile" gen tpch --scale "$scale" --out "$data" --quiet

q6="select sum(l_extendedprice * l_discount) as revenue from lineitem
    where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
      and l_discount between 0.05 and 0.07 and l_quantity < 24"
count="select count(*) from lineitem where l_shipdate < date '1995-01-01'"
sums="select sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)),
    sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice),
    avg(l_discount), count(*) from lineitem where l_shipdate <= date '1998-09-02'"
modes="select count(*), min(l_shipdate), max(l_commitdate) from lineitem
    where l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate"
rows="select l_orderkey, l_extendedprice from lineitem
    where l_shipdate = date '1995-03-15' and l_quantity = 50 and l_discount = 0.10"

# Milliseconds of `runs` runs of a statement in one process, one a line.
times() { # mode statement runs
    local script="set vectile.gpu = '$1';" i
    for ((i = 0; i < $3; i++)); do script+="$2;"; done
    VECTILE_CACHE=$cache "$vectile" sql --timing -t "lineitem=$data/lineitem.vectile" \
        --format csv "$script" 2>&1 >/dev/null | awk '/^statement/ && $2 != "1:" { print $3 }'
}
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

printf '%-8s %14s %14s %12s %12s %8s   (milliseconds)\n' \
    query 'gpu, first' 'disk cache' 'gpu, warm' 'cpu, warm' ratio
for name in count q6 sums modes rows; do
    rm -rf "${cache:?}"/*
    first=$(times require "${!name}" 1)
    gpu=$(times require "${!name}" $runs)
    warm=$(echo "$gpu" | tail -n +3 | median)
    cpu=$(times off "${!name}" 4 | tail -n +2 | median)
    printf '%-8s %14s %14s %12s %12s %8s\n' "$name" "$first" "$(echo "$gpu" | head -1)" "$warm" "$cpu" \
        "$(awk "BEGIN { printf \"%.1f\", $cpu / $warm }")"
done
