#!/usr/bin/env bash
# Trains lenet for 50 steps through two parameter servers and over a ring of the
# same three workers, and compares the weights byte for byte.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
psring=${PSRING:-$here/../psring}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

training=(--model=lenet --steps=50 --batch-size=16 --lr=0.02 --momentum=0.5
  "--data=${DATA:-digits}" --threads=1 "--device=${DEVICE:-cpu}" --deterministic
  --ring-backend=host --host-sum=off)

"$psring" launch --mode=ps --servers=2 --workers=3 -- \
  "${training[@]}" --checkpoint-dir="$out/ps"
"$psring" launch --mode=ring --workers=3 -- \
  "${training[@]}" --checkpoint-dir="$out/ring"

cmp "$out"/ps/step-*/model.safetensors "$out"/ring/step-*/model.safetensors
echo "identical weights: $(sha256sum < "$out"/ring/step-00000050/model.safetensors)"
