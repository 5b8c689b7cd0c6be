#!/usr/bin/env bash
# One worker of four takes three times as long for a step: what does that cost
# each way, compared with the same training without it?
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
psring=${PSRING:-$here/../psring}

"$psring" compare --workers=4 \
  --modes=ps-bsp,ps-bsp+backup-workers=1,ps-ssp:3,ps-async,ring \
  --slow=none --slow=worker:2:x3 --seeds="${SEEDS:-1}" --epochs="${EPOCHS:-3}" \
  "--data=${DATA:-digits:train=4000,test=1000}" --lr=0.05 --batch-size=16 \
  --out="${OUT:-stragglers}"
