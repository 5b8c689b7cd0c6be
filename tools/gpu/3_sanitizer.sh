#!/usr/bin/env bash
# compute-sanitizer over gpu-check: memcheck finds accesses outside of allocations, in
# kernels of psring and of the libraries that it calls; initcheck finds reads of memory
# that nobody has written, of which those of psring's own kernels count. (cuBLAS and NCCL
# have such reads that do no harm; their reports are kept.) psring's kernels share no memory
# within a block, so racecheck would have nothing to look at.
#
# gpu-check's trainings are slow under it, and take 8 steps here. --tools=memcheck runs one tool, and
# --seconds=1200 gives it more time than the ten minutes allow.

name=3_sanitizer on_cpu= flags="tools seconds" tools=memcheck,initcheck seconds=270
. "$(dirname "$(readlink -f "$0")")/common.sh"

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null || true)
if [ -z "$sanitizer" ]; then
  bad "no compute-sanitizer: it comes with CUDA's toolkit"
  finish
fi

# check TOOL FLAGS...: gpu-check under it. Its exit code; 9 where the tool has found something.
check() {
  local tool=$1
  shift
  # Libraries ask the driver for what it may not have, and the trainings on CPUs never
  # call it: neither is an error.
  timeout $((seconds + 10)) "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 \
    --require-cuda-init no "$@" \
    "${psring[@]}" gpu-check --size=1MB --steps=8 "--timeout=$seconds" > "$out/$tool.log" 2>&1
}

# The reports of psring's own kernels: each names its kernel after an "at".
of_psring() { grep -E '^=========  *at .*psring' "$out/$1.log" || true; }

for tool in ${tools//,/ }; do
  code=0
  case "$tool" in
    memcheck) check memcheck --report-api-errors no || code=$? ;;
    initcheck) check initcheck --print-limit 100000 || code=$? ;;
    *) bad "--tools=$tool: memcheck or initcheck"; continue ;;
  esac
  grep -v '^=========' "$out/$tool.log" || true
  found=$(of_psring "$tool" | wc -l)
  if [ "$found" != 0 ]; then
    bad "$tool: $found reports of psring's kernels, in $out/$tool.log"
    of_psring "$tool" | sort | uniq -c | sort -rn | head -n 5
  elif ! grep -q '^all is well' "$out/$tool.log"; then
    bad "$tool: gpu-check did not end well within $seconds s (exit code $code): see $out/$tool.log, and --seconds"
  elif [ "$tool" = memcheck ] && [ $code != 0 ]; then
    bad "$tool: exit code $code (9: it has found something): see $out/$tool.log"
  elif [ $code != 0 ]; then
    good "$tool: nothing in psring's kernels; reports of others are in $out/$tool.log"
  else
    good "$tool: nothing found"
  fi
done
finish
