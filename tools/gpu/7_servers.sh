#!/usr/bin/env bash
# A parameter server's copies: images a second with 1, 2 and 4 servers and several
# sizes of bucket, to be held against the copy rates of 2_check.

name=7_servers on_cpu="all of it, on images of 3x32x32"
. "$(dirname "$(readlink -f "$0")")/common.sh"

begin=$SECONDS
model=resnet50 shape=3x224x224 batch=64 steps=40 sizes="1 4 16 64" counts="1 2 4"
if [ $device = cpu ]; then
  model=resnet18 shape=3x32x32 batch=16 steps=9 sizes="1 16" counts="1 2"
fi
echo "servers bucket-mb images/s"
for servers in $counts; do
  for size in $sizes; do
    if [ $((SECONDS - begin)) -gt 500 ]; then echo "left out: $servers $size"; continue; fi
    rm -rf "$out/metrics"
    job "$servers-$size" --mode=ps --servers=$servers --workers=1 --metrics-dir="$out/metrics" -- \
      --model=$model --data=synthetic:$shape,classes=1000,train=$((batch * 4)),test=1 \
      --batch-size=$batch --steps=$steps --precision=bf16 --channels-last --bucket-mb=$size \
      --device=$device --lr=0.01 || bad "$servers servers, $size MiB: see $out/$servers-$size.log"
    printf '%7s %9s %8s\n' $servers $size "$("${PYTHON:-python3}" "$folder/rate.py" "$out/metrics" || echo -)"
  done
done
finish
