#!/usr/bin/env bash
# psring gpu-check: kernels against the host, copies, allreduces, trainings.
#
# A training passes if its loss on the test data is that of the same training on CPUs.
# GPUs add in other orders, so an mlp's may be 0.1% off, and lenet's 0.5%; a lost update
# shows, as the last one alone changes it by more. lenet trains without dropout, whose
# chances on a GPU are others.

name=2_check on_cpu=
. "$(dirname "$(readlink -f "$0")")/common.sh"

# check WHAT ARGS...
check() {
  local what=$1
  shift
  timeout 290 "${psring[@]}" gpu-check --timeout=280 "$@" && good "$what" || bad "$what"
}

check "gpu-check, 256 MB (losses within 0.1% of the CPUs')" --size=256MB
check "gpu-check, convolutions (losses within 0.5% of the CPUs')" \
  --size=16MB --model=lenet:dropout=0
finish
