#!/usr/bin/env bash
# Synchronous against asynchronous training, with three seeds: who reaches the
# same accuracy first, and is it faster steps or fewer of them? The report
# answers; if it is stopped, the same command resumes it.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
psring=${PSRING:-$here/../psring}

"$psring" compare --modes=ps-bsp,ps-ssp:3,ps-async,ring --workers=2 \
  --seeds="${SEEDS:-3}" --epochs="${EPOCHS:-4}" "--data=${DATA:-digits:train=4000,test=1000}" \
  --lr=0.05 --batch-size=32 --out="${OUT:-async_vs_sync}"
