#!/usr/bin/env bash
# A parameter server's copies: images a second with 1, 2 and 4 servers and several
# sizes of bucket in MiB, to be held against the copy rates of 2_check. --servers and
# --sizes choose others.

name=7_servers on_cpu="lenet in place of resnet50"
flags="servers sizes" servers= sizes=
. "$(dirname "$(readlink -f "$0")")/common.sh"

# Some seconds of an H100 each, in epochs long enough that evaluations between them do
# not count. With threads that load them, images stay in the host's memory, as in 6_speed.
model=resnet50 shape=3x224x224 batch=64 steps=300 counts=1,2,4 buckets=1,4,16,64
if [ $device = cpu ]; then
  model=lenet shape=3x32x32 batch=16 steps=240 counts=1,2 buckets=1,16
fi
servers=${servers:-$counts} sizes=${sizes:-$buckets}

# measure SERVERS SIZE
measure() {
  local log=$1-$2 rate
  rm -rf "$out/metrics"
  if ! job "$log" --mode=ps --servers="$1" --workers=1 --metrics-dir="$out/metrics" -- \
    --model=$model --data=synthetic:$shape,classes=1000,train=8192,test=1 \
    --batch-size=$batch --steps=$steps --precision=bf16 --channels-last --bucket-mb="$2" \
    --loader-threads=2 --device=$device --lr=0.01; then
    bad "$1 servers, $2 MiB: see $out/$log.log"
  elif rate=$("$python" "$folder/rate.py" "$out/metrics" 2>> "$out/python.log"); then
    printf '%7s %9s %8s\n' "$1" "$2" "$rate"
  else
    bad "$1 servers, $2 MiB: no rate: $(tail -n 1 "$out/python.log")"
  fi
}

echo "servers bucket-mb images/s"
for count in ${servers//,/ }; do
  for size in ${sizes//,/ }; do
    if late; then echo "left out: --servers=$count --sizes=$size"; continue; fi
    timed measure "$count" "$size"
  done
done
finish
