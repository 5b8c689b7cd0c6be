#!/usr/bin/env bash
# psring gpu-check: kernels against the host, copies, allreduces, trainings.

name=2_check on_cpu=
. "$(dirname "$(readlink -f "$0")")/common.sh"

timeout 280 "${psring[@]}" gpu-check --size=256MB && good "gpu-check, 256 MB" || bad "gpu-check, 256 MB"
timeout 280 "${psring[@]}" gpu-check --size=16MB --model=lenet &&
  good "gpu-check, convolutions" || bad "gpu-check, convolutions"
finish
