#!/usr/bin/env bash
# Two workers: the ring over NCCL, the ring over the host and a parameter server
# end with the same weights, to the bit; so does a run that stopped and resumed.

name=4_same_bits shares_gpu=yes on_cpu="the two hosts' ways, and resuming"
. "$(dirname "$(readlink -f "$0")")/common.sh"

# train NAME ARGS... -- WORKER FLAGS...
train() {
  local run=$1 launch=()
  shift
  while [ "$1" != -- ]; do launch+=("$1"); shift; done
  shift
  if job "$run" "${launch[@]}" --workers=2 -- "${mlp[@]}" --momentum=0.9 --deterministic \
    --checkpoint-dir="$out/$run" "$@"; then
    good "$run trains"
  else
    bad "$run: $(tail -n 1 "$out/$run.log")"
  fi
}

train ps --mode=ps -- --steps=120 --host-sum=off
train host --mode=ring -- --steps=120 --ring-backend=host
same "$out/ps" "$out/host" "ps and the host's ring: the same bits"
if [ $device = cuda ]; then
  train nccl --mode=ring -- --steps=120 --ring-backend=nccl
  same "$out/nccl" "$out/host" "NCCL's ring and the host's: the same bits"
  train host_sum --mode=ps -- --steps=120
  same "$out/host_sum" "$out/ps" "servers, with and without NCCL's sum within the host: the same bits"
fi
for way in ps ring; do
  train resumed_$way --mode=$way -- --steps=60
  train resumed_$way --mode=$way -- --steps=120 --resume --checkpoint-keep=1
  same "$out/resumed_$way" "$out/ps" "$way, resumed at step 60: the same bits"
done
finish
