#!/usr/bin/env bash
# What goes wrong is one clear error: a batch that does not fit, a GPU that is not
# there, none visible, one for two workers.

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
finish
