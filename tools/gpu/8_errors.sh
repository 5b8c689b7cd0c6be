#!/usr/bin/env bash
# What goes wrong is one clear error: a batch that does not fit, a GPU that is not
# there, none visible, one for two workers, an evaluation that does not fit.

name=8_errors on_cpu="a device and a precision that the CPU is not and has not"
. "$(dirname "$(readlink -f "$0")")/common.sh"

# says WHAT TEXT ARGS...: the command fails within a minute, and says so.
says() {
  local what=$1 text=$2 code=0
  shift 2
  timeout 60 "$@" > "$out/error.log" 2>&1 || code=$?
  if [ $code != 0 ] && [ $code != 124 ] && [ $code -lt 128 ] && grep -qE -- "$text" "$out/error.log"; then
    good "$what: $(grep -m 1 -E -- "$text" "$out/error.log" | cut -c 1-160)"
  else
    bad "$what: ended with $code, and does not say \"$text\": $(tail -n 1 "$out/error.log")"
  fi
}

# Takes all of the GPU's memory but 4 GiB, until free_memory. What fits into 4 GiB: CUDA's
# context and the training below, not its evaluation.
hold_memory() {
  "$python" -c '
import time, torch
kept = torch.empty(torch.cuda.mem_get_info(0)[0] - (4 << 30), dtype=torch.uint8, device="cuda:0")
print("holds", kept.numel() >> 20, "MiB", flush=True)
time.sleep(120)' > "$out/holder.log" 2>&1 &
  holder=$!
  for _ in $(seq 600); do
    ! grep -q ^holds "$out/holder.log" || return 0
    kill -0 $holder 2> /dev/null || return 1
    sleep 0.1
  done
  return 1
}

free_memory() { kill $holder 2> /dev/null || true; wait $holder 2> /dev/null || true; }

launch=("${psring[@]}" launch --mode=ring)
small=(--data=digits:train=64,test=16 --steps=2)
if [ $device = cpu ]; then
  says "no GPU" "--device=cuda" "${launch[@]}" --workers=1 -- "${small[@]}" --device=cuda
  says "fp16 on the CPU" "the CPU takes fp32 and bf16" \
    "${launch[@]}" --workers=1 -- "${small[@]}" --device=cpu --precision=fp16
  finish
fi
says "a GPU that is not there" "numbered from 0" "${launch[@]}" --workers=1 -- "${small[@]}" --device=cuda:63
says "none visible" "CUDA_VISIBLE_DEVICES" \
  env CUDA_VISIBLE_DEVICES= "${launch[@]}" --workers=1 -- "${small[@]}" --device=cuda
says "one for two" "same GPU|--allow-shared-gpu" \
  env CUDA_VISIBLE_DEVICES=0 "${launch[@]}" --workers=2 -- "${small[@]}" --device=cuda
says "a batch that does not fit" "out of memory.*--batch-size" "${launch[@]}" --workers=1 -- \
  --model=resnet50 --data=synthetic:3x224x224,classes=1000,train=16384,test=1 \
  --batch-size=16384 --steps=2 --device=cuda
# An evaluation has at most 2^26 pixels at once, here 85 samples, which take about 6 GB
# where the training of 1 sample takes about 1.
trap free_memory EXIT
if hold_memory; then
  says "an evaluation that does not fit" "evaluation.*out of memory" \
    "${launch[@]}" --workers=1 -- \
    --model=resnet50 --data=synthetic:3x512x512,classes=10,train=2,test=170 \
    --batch-size=1 --steps=1 --device=cuda:0
else
  bad "an evaluation that does not fit: nothing holds the GPU's memory ($(tail -n 1 "$out/holder.log")): PYTHON must have torch with CUDA"
fi
finish
