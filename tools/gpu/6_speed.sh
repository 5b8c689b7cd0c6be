#!/usr/bin/env bash
# Images a second of resnet18 and resnet50, in the ring and in ps with one server,
# beside the plain loop of PyTorch and its DDP over NCCL; of psring's own trainer
# (ring, ps), and of the plain loop with psring's optimizer (script-ring, script-ps; with
# update="fused", as one worker has nothing to exchange otherwise).
# Goals: 0.97 of the plain loop in the ring, 0.9 in ps. All of them hold images
# channels-last, and copy each batch from the host's memory.
#
# Each figure is the mean of about --seconds. What does not fit into ten minutes is
# left out, and said; --models, --batches, --precisions and --ways choose what to
# measure: --batches=1024, for example.

name=6_speed on_cpu="resnet18 in bf16, on images of 3x32x32"
flags="models batches precisions ways seconds"
models=resnet50,resnet18 batches=256,64 precisions=bf16,tf32,fp32 seconds=6
ways=ddp,ring,ps,script-ring,script-ps
. "$(dirname "$(readlink -f "$0")")/common.sh"

# plain MODEL SHAPE BATCH PRECISION OVER [COMMAND...]: images/s of PyTorch's loop, which the
# command starts. Ends with 4 where they do not fit the GPU.
plain() {
  timeout 300 "${@:6}" "$python" "$folder/plain_train.py" --model="$1" --shape="$2" --batch="$3" \
    --precision="$4" --over="$5" --seconds="$seconds" --device=$device 2>> "$out/python.log"
}

# script MODE MODEL SHAPE BATCH PRECISION: images/s of that loop with psring's optimizer.
script() {
  local mode=$1
  shift
  plain "$@" psring "${psring[@]}" run --mode="$mode" --workers=1 --update=fused -- |
    tee -a "$out/python.log" | sed -n 's/^\[worker 0\] \([0-9]*\)$/\1/p'
}

# trained MODE MODEL SHAPE BATCH PRECISION STEPS: images/s of psring. Its epochs are of
# 8192 images, so that evaluations between them are few; with threads that load them, they
# stay in the host's memory, as the plain loop's do.
trained() {
  rm -rf "$out/metrics"
  job "$1-$2-$4-$5" --mode="$1" --workers=1 --metrics-dir="$out/metrics" -- --model="$2" \
    --data="synthetic:$3,classes=1000,train=8192,test=1" --batch-size="$4" --precision="$5" \
    --steps="$6" --loader-threads=2 --channels-last --device=$device --lr=0.01 || return
  "$python" "$folder/rate.py" "$out/metrics" 2>> "$out/python.log"
}

# ratio A B: A / B.
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "-" }'; }

# measure MODEL SHAPE BATCH PRECISION
measure() {
  local what="$1, batch $3, $4" base code=0 way rate steps failed_ways=
  base=$(plain "$@" nothing) || code=$?
  if [ $code = 4 ]; then
    echo "$what: does not fit the GPU's memory"
    return
  fi
  [ $code = 0 ] || { base=0 failed_ways=" plain"; }
  # psring's rate leaves out the first third.
  steps=$(awk -v rate="$base" -v s="$seconds" -v batch="$3" \
    'BEGIN { n = int(1.5 * s * rate / batch); print (n < 12 ? 12 : n) }')
  printf '%-9s %5s %5s  plain %8s' "$1" "$3" "$4" "$base"
  for way in ${ways//,/ }; do
    case $way in
      ddp) rate=$(plain "$@" ddp) || rate=0 ;;
      script-*) rate=$(script "${way#script-}" "$@") || rate=0 ;;
      *) rate=$(trained $way "$@" "$steps") || rate=0 ;;
    esac
    : "${rate:=0}"
    [ "$rate" != 0 ] || failed_ways="$failed_ways $way"
    printf '  %s %8s (%s)' $way "$rate" "$(ratio "$rate" "$base")"
  done
  echo
  [ -z "$failed_ways" ] || bad "$what: no figure of$failed_ways: see python.log and the logs of jobs in $out"
}

if ! "$python" -c 'import psring.torch' 2>> "$out/python.log" && [ "$home" != "$(readlink -f "$folder/../..")" ]; then
  echo "left out: script-ring, script-ps: $python has no psring.torch, which a bundle does not bring (pip install psring-*.whl)"
  ways=$(echo "$ways" | tr , '\n' | grep -v '^script-' | paste -sd ,)
fi

echo "model     batch       images/s (of the plain loop)"
if [ $device = cpu ]; then
  seconds=1
  ways=ddp,ps,script-ring measure resnet18 3x32x32 4 bf16
  finish
fi
for batch in ${batches//,/ }; do
  for precision in ${precisions//,/ }; do
    for model in ${models//,/ }; do
      if late; then
        echo "left out: --models=$model --batches=$batch --precisions=$precision"
        continue
      fi
      timed measure "$model" 3x224x224 "$batch" "$precision"
    done
  done
done
finish
