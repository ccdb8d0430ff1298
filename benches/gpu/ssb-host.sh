#!/usr/bin/env bash
# One query of each flight of the Star Schema Benchmark where the device may keep a fraction of the columns:
# they come from pinned host memory each time. Encoded columns beside plain ones, as `ssb.py --plain` leaves
# them in DIR.
#
#   benches/gpu/ssb-host.sh VECTILE DIR [DEVICE_BYTES [HOST_BYTES]]
set -euo pipefail
vectile=$(realpath "$1")
data=$2
device=${3:-256000000}
host=${4:-16000000000}
queries=$(cd "$(dirname "$0")/../../sql-tests/ssb" && pwd)
printf '%-6s %12s %12s %7s   (milliseconds)\n' query encoded plain ratio
for number in 1.1 2.1 3.1 4.1; do
    query=$(sed 's/;[[:space:]]*$//' "$queries/q$number.sql")
    times=()
    for table in lineorder lineorder-plain; do
        script="set vectile.gpu = 'require'; set vectile.gpu.memory_limit = '$device';
            set vectile.gpu.host_memory_limit = '$host';"
        for _ in 1 2 3 4 5; do script+="$query;"; done
        times+=("$("$vectile" sql --timing --format csv -t "lineorder=$data/$table.vectile" \
            -t "date=$data/date.vectile" -t "customer=$data/customer.vectile" \
            -t "supplier=$data/supplier.vectile" -t "part=$data/part.vectile" "$script" 2>&1 >/dev/null \
            | awk '/^statement/ { print $3 }' | tail -n 4 | sort -n | sed -n 2p)")
    done
    printf '%-6s %12s %12s %7s\n' "$number" "${times[0]}" "${times[1]}" \
        "$(awk "BEGIN { printf \"%.2f\", ${times[1]} / ${times[0]} }")"
done
