#!/usr/bin/env bash
# What is installed: driver, CUDA, NCCL, libtorch, and which of them the worker loads.

name=1_versions on_cpu="all but the driver's part"
. "$(dirname "$(readlink -f "$0")")/common.sh"

[ $device = cpu ] || nvidia-smi
"${psring[@]}" --version
"${psring[@]}" doctor && good doctor || bad doctor
clone=$home
for program in "$clone/bazel-bin/worker/worker" "$clone/bin/worker/worker"; do
  [ -x "$program" ] || continue
  "$program" --version
  libraries=$(ldd "$program" | grep -E 'torch|c10|cuda|nccl|cudnn|not found' || true)
  echo "$libraries"
  case "$libraries" in
    *"not found"*) bad "$program lacks libraries" ;;
    *) good "$program finds its libraries" ;;
  esac
done
finish
