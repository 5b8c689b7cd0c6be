#!/usr/bin/env bash
# Images a second of resnet18 and resnet50, in the ring and in ps with one server,
# beside the plain loop of PyTorch and its DDP over NCCL. Goals: 0.97 of the plain
# loop in the ring, 0.9 in ps.

name=6_speed on_cpu="lenet's size of it: resnet18 on images of 3x32x32"
. "$(dirname "$(readlink -f "$0")")/common.sh"

begin=$SECONDS
python=${PYTHON:-python3}
# Under ten minutes: what comes last is left out, and said.
late() { [ $((SECONDS - begin)) -gt 480 ]; }

rate_of() { "$python" "$folder/rate.py" "$@"; }

# measure MODEL SHAPE BATCH PRECISION
measure() {
  local model=$1 shape=$2 batch=$3 precision=$4 steps=40 plain way rate
  [ $device = cuda ] || steps=12
  local images=$((batch * 4))
  plain=$("$python" "$folder/plain_train.py" --model=$model --shape=$shape --batch=$batch \
    --precision=$precision --steps=$steps --device=$device 2>> "$out/python.log" || echo 0)
  printf '%-9s %5s %5s  plain %8s' $model $batch $precision "$plain"
  for way in ddp ring ps; do
    if [ $way = ddp ]; then
      rate=$("$python" "$folder/plain_train.py" --ddp --model=$model --shape=$shape --batch=$batch \
        --precision=$precision --steps=$steps --device=$device 2>> "$out/python.log" || echo 0)
    else
      rm -rf "$out/metrics"
      job "$way" --mode=$way --workers=1 --metrics-dir="$out/metrics" -- --model=$model \
        --data=synthetic:$shape,classes=1000,train=$images,test=1 --batch-size=$batch \
        --steps=$steps --precision=$precision --channels-last --device=$device --lr=0.01 || true
      rate=$(rate_of "$out/metrics" || echo 0)
    fi
    printf '  %s %8s (%s)' $way "$rate" \
      "$(awk -v a="$rate" -v b="$plain" 'BEGIN { printf b > 0 ? "%.2f" : "-", b > 0 ? a / b : 0 }')"
  done
  echo
  [ "$rate" != 0 ] && [ "$plain" != 0 ] || bad "$model, batch $batch, $precision: see $out"
}

echo "model     batch       images/s (of the plain loop)"
if [ $device = cpu ]; then
  measure resnet18 3x32x32 16 fp32
  measure resnet18 3x32x32 16 bf16
  finish
fi
for batch in 256 64 1024; do
  for precision in bf16 tf32 fp32; do
    for model in resnet50 resnet18; do
      if late; then echo "left out: $model $batch $precision"; continue; fi
      measure $model 3x224x224 $batch $precision
    done
  done
done
finish
