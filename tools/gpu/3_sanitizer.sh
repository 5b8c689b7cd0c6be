#!/usr/bin/env bash
# compute-sanitizer over gpu-check: accesses outside of allocations, and races.

name=3_sanitizer on_cpu=
. "$(dirname "$(readlink -f "$0")")/common.sh"

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null || true)
if [ -z "$sanitizer" ]; then
  bad "no compute-sanitizer: it comes with CUDA's toolkit"
  finish
fi
for tool in memcheck initcheck; do
  timeout 280 "$sanitizer" --tool $tool --target-processes all --error-exitcode 9 \
    "${psring[@]}" gpu-check --size=1MB --timeout=270 &&
    good "$tool" || bad "$tool (9: it has found something, 124: it took too long)"
done
finish
