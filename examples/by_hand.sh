#!/usr/bin/env bash
# A job of one server and two workers, process by process. On several hosts,
# give all of them one key (psring keygen), run each line on its host and put the
# first host's address for 127.0.0.1.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
psring=${PSRING:-$here/../psring}
coordinator=127.0.0.1:${PORT:-7000}
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT

"$psring" ps --coordinator="$coordinator" --host-coordinator --servers=1 --workers=2 &
for _ in 1 2; do
  "$psring" worker --coordinator="$coordinator" --model=lenet \
    "--data=${DATA:-digits}" --epochs="${EPOCHS:-2}" --lr=0.05 --momentum=0.5 \
    "--device=${DEVICE:-cpu}" &
done

# Everybody ends by itself; the first failure is ours too.
for process in $(jobs -p); do
  wait "$process"
done
echo "trained"
