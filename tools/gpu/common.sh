# Sourced by the scripts of this folder, after they have set `name` and
# `on_cpu`: what of them --device=cpu tries out ("" where there is nothing).
set -euo pipefail

usage() {
  echo "Usage: tools/gpu/$name.sh [--device=cpu]"
  echo
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
  echo "Takes under ten minutes and no network. Prints what it finds, and keeps it in"
  echo "\$OUT (gpu-results). Ends with 0: all is well, 1: something is wrong, 3: no GPU."
  echo "--device=cpu tries the script itself: ${on_cpu:-nothing of it runs on a CPU}."
  echo "PSRING names the command to use; by default the wrapper of this clone."
}

device=cuda
for word in "$@"; do
  case "$word" in
    -h | --help) usage; exit ;;
    --device=cpu) device=cpu ;;
    --device=cuda) ;;
    *) echo "$name: $word: see --help" >&2; exit 2 ;;
  esac
done

folder=$(dirname "$(readlink -f "$0")")
psring=${PSRING:-$folder/../../psring}
out=${OUT:-$PWD/gpu-results}/$name
has_gpu() { ls /dev/nvidia[0-9]* > /dev/null 2>&1 || nvidia-smi -L > /dev/null 2>&1; }

if [ $device = cuda ] && ! has_gpu; then
  echo "$name: no GPU here (no /dev/nvidia0, and nvidia-smi lists none). --device=cpu tries the script itself: ${on_cpu:-nothing of it runs on a CPU}" >&2
  exit 3
fi
if [ $device = cpu ] && [ -z "$on_cpu" ]; then
  echo "$name: nothing of it runs on a CPU"
  exit
fi
rm -rf "$out"
mkdir -p "$out"
exec > >(tee "$out/output.txt") 2>&1
echo "# $name, $(date -u '+%Y-%m-%d %H:%M') UTC, on $device: $("$psring" --version | head -n 1)"
[ $device = cpu ] || nvidia-smi -L || true

failed=0
# good WHAT, bad WHAT: one line of the result.
good() { echo "ok      $*"; }
bad() { echo "WRONG   $*"; failed=1; }
finish() {
  [ $failed = 0 ] && echo "$name: all is well" || echo "$name: something is wrong, see above"
  exit $failed
}

# Workers that share the GPU, where there is one alone.
shared=()
[ $device = cpu ] || shared=(--allow-shared-gpu)

# job LOG ARGS...: psring launch; its exit code.
job() {
  local log=$1
  shift
  timeout 300 "$psring" launch "$@" > "$out/$log.log" 2>&1
}

# Small, without dropout, convolutions or chance: lost updates show.
mlp=(--model=mlp:784-256-10 --data=digits:train=2048,test=512 --batch-size=32
  --lr=0.05 --device=$device "${shared[@]}")

weights() { echo "$1"/step-*/model.safetensors; }

# same A B WHAT: whether two checkpoints hold the same bytes.
same() {
  if cmp -s $(weights "$1") $(weights "$2"); then good "$3"; else bad "$3: the weights differ"; fi
}
