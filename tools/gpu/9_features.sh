#!/usr/bin/env bash
# What a job can be told to do differently, on the GPU: each run ends with the test loss of
# the same run on CPUs. GPUs add in other orders, and what is rounded (tf32, bf16, fp16,
# --compress) may then be rounded the other way, so each run has its own tolerance. In ssp
# and async the order of updates is chance, and the loss need only be near the CPUs'.
#
# Runs four at a time, in two workers of one thread each.

name=9_features shares_gpu=yes on_cpu="each run once, with nothing to compare it with" flags="at_once" at_once=4
. "$(dirname "$(readlink -f "$0")")/common.sh"

# loss LOG ARGS...: the last test loss of that job.
loss() {
  local log=$1
  shift
  job "$log" --threads-per-worker=1 "$@" || return
  sed -n 's/.* test loss \([^,]*\),.*/\1/p' "$out/$log.log" | tail -n 1
}

# compare NAME TOLERANCE LAUNCH FLAGS -- WORKER FLAGS: a line of the result. ON_GPU: a flag
# of the GPU's run alone.
compare() {
  local what=$1 tolerance=$2 launch=() found wanted
  shift 2
  while [ "$1" != -- ]; do launch+=("$1"); shift; done
  shift
  local training=("$@") flag
  for flag in --model=mlp:784-256-10 --data=digits:train=2048,test=512 --batch-size=32 --lr=0.05 --steps=96; do
    case " $* " in *" ${flag%%=*}="*) ;; *) training+=("$flag") ;; esac
  done
  found=$(loss "$what" "${launch[@]}" -- "${training[@]}" --device=$device "${shared[@]}" ${ON_GPU:-}) || found=
  wanted=$found
  [ $device = cpu ] || wanted=$(loss "$what-cpu" "${launch[@]}" -- "${training[@]}" --device=cpu) || wanted=
  if awk -v a="${found:-x}" -v b="${wanted:-x}" -v t="$tolerance" \
    'BEGIN { exit !(a + 0 == a && b > 0 && (a - b) <= t * b && (b - a) <= t * b) }'; then
    good "$what: loss $found, on CPUs $wanted"
  else
    bad "$what: loss ${found:-none: $(tail -n 1 "$out/$what.log")}, on CPUs ${wanted:-none}"
  fi
}

# run ARGS...: compare, behind at most at_once others.
run() {
  while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do sleep 0.1; done
  compare "$@" > "$out/$1.result" 2>&1 &
  pids+=($!)
}

pids=()
for mode in ring ps; do
  run $mode 0.001 --mode=$mode --
  run $mode-clip 0.001 --mode=$mode -- --clip-norm=0.5
  run $mode-adam 0.01 --mode=$mode -- --optimizer=adam --lr=0.002
  run $mode-local-steps 0.001 --mode=$mode -- --local-steps=4
  run $mode-int8 0.02 --mode=$mode -- --compress=int8
  run $mode-topk 0.05 --mode=$mode -- --compress=topk:0.1
  run $mode-slow 0.001 --mode=$mode -- --slow=worker:1:x2
  run $mode-bf16 0.05 --mode=$mode -- --precision=bf16
  [ $device = cuda ] || continue
  ON_GPU=--precision=tf32 run $mode-tf32 0.02 --mode=$mode --
  ON_GPU=--precision=fp16 run $mode-fp16 0.02 --mode=$mode --
done
run lenet-channels-last 0.01 --mode=ring -- --model=lenet:dropout=0 --channels-last --steps=48
run loader-threads 0.001 --mode=ring -- --loader-threads=2
run sync-batch-norm 0.02 --mode=ring -- --model=resnet18 --sync-batch-norm --steps=6
run servers-2 0.001 --mode=ps --servers=2 -- --momentum=0.9 --lr=0.01
run host-sum-off 0.001 --mode=ps -- --host-sum=off
run messages 0.001 --mode=ps --server-flag=--same-host=off -- --same-host=off --host-sum=off
run backup-workers 0.5 --mode=ps --workers=3 -- --backup-workers=1
run ssp 0.5 --mode=ps -- --sync=ssp:2 --staleness-lr
run async 0.5 --mode=ps -- --sync=async --delay-compensation=0.04
# Adam ends near 0.1, from 2.3: there, chance is a large part.
run async-local 2 --mode=ps -- --sync=async --optimizer=adam --lr=0.002
wait "${pids[@]}" || true
cat "$out"/*.result
! grep -q '^WRONG' "$out"/*.result || failed=1
finish
