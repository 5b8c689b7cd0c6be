#!/usr/bin/env bash
# How many servers for four workers and a model whose parameters weigh more than
# its computing? Processes send everything, as they would between hosts.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
psring=${PSRING:-$here/../psring}

"$psring" compare --modes=ps-bsp --servers=1,2,4 --workers=4 \
  --seeds="${SEEDS:-2}" --epochs="${EPOCHS:-4}" "--data=${DATA:-digits:train=4000,test=1000}" \
  --model=mlp:784-512-256-10 --lr=0.05 --batch-size=32 --out="${OUT:-how_many_servers}" \
  -- --same-host=off
