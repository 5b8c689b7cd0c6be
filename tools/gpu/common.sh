# Sourced by the scripts of this folder, after they have set `name`, `on_cpu`: what of
# them --device=cpu tries out ("" where there is nothing), `flags`: the variables
# that --VARIABLE=VALUE sets (none by default), and `shares_gpu=yes` where their workers
# have one GPU.
set -euo pipefail

usage() {
  local flag more=
  for flag in ${flags:-}; do more="$more [--$flag=${!flag}]"; done
  echo "Usage: tools/gpu/$name.sh [--device=cpu]$more"
  echo
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
  echo
  echo "Build first: ./psring build. This builds and installs nothing, and takes under ten"
  echo "minutes and no network. It prints what it finds, and keeps it in \$OUT (gpu-results)."
  echo "Ends with 0: all is well, 1: something is wrong, 3: no GPU."
  echo "--device=cpu tries the script itself: ${on_cpu:-nothing of it runs on a CPU}."
  echo "PSRING names the command to use (the one of a bundle, say); by default the wrapper of"
  echo "this clone. PYTHON names a python3 with torch, where a script needs one."
}

# set_flag --VARIABLE=VALUE, where `flags` has VARIABLE.
set_flag() {
  local variable=${1%%=*}
  variable=${variable#--}
  case "$1" in --*=?*) ;; *) return 1 ;; esac
  case " ${flags:-} " in *" $variable "*) ;; *) return 1 ;; esac
  printf -v "$variable" %s "${1#*=}"
}

device=cuda
for word in "$@"; do
  case "$word" in
    -h | --help) usage; exit ;;
    --device=cpu) device=cpu ;;
    --device=cuda) ;;
    *) set_flag "$word" || { echo "$name: $word: see --help" >&2; exit 2; } ;;
  esac
done

folder=$(dirname "$(readlink -f "$0")")
psring=("$(command -v "${PSRING:-$folder/../../psring}" || true)")
if [ -z "${psring[0]}" ]; then
  echo "$name: there is no ${PSRING:-$folder/../../psring}" >&2
  exit 2
fi
home=$(dirname "$(readlink -f "${psring[0]}")")  # of the clone or the bundle
# A clone's wrapper would otherwise build first, and install what that lacks.
is_clone_built() {
  (
    root=$home state=$home/.psring may_install=no
    . "$root/tools/setup.sh"
    . "$root/tools/build.sh"
    choose_torch
    is_built
  )
}
if [ -e "$home/tools/setup.sh" ]; then
  if ! is_clone_built; then
    echo "$name: $home is not built, or not from its sources of now: $home/psring build" >&2
    exit 2
  fi
  psring+=(--no-setup)
fi
# The python3 that has torch: the active one, or the clone's.
python=${PYTHON:-python3}
if [ -z "${PYTHON:-}" ] && [ -x "$folder/../../.venv/bin/python3" ] && ! python3 -c '
import importlib.util, sys
sys.exit(importlib.util.find_spec("torch") is None)' 2> /dev/null; then
  python=$folder/../../.venv/bin/python3
fi
out=${OUT:-$PWD/gpu-results}/$name
has_gpu() { ls /dev/nvidia[0-9]* > /dev/null 2>&1 || nvidia-smi -L > /dev/null 2>&1; }

if [ $device = cuda ] && ! has_gpu; then
  echo "$name: no GPU here (no /dev/nvidia0, and nvidia-smi lists none). --device=cpu tries the script itself: ${on_cpu:-nothing of it runs on a CPU}" >&2
  exit 3
fi
if [ $device = cuda ] && "${psring[@]}" --version | grep -qx "CUDA none"; then
  echo "$name: psring was built without CUDA: build it where nvcc and nccl.h are (docs/gpus.md)" >&2
  exit 2
fi
if [ $device = cpu ] && [ -z "$on_cpu" ]; then
  echo "$name: nothing of it runs on a CPU"
  exit
fi
if [ $device = cuda ] && [ -n "${shares_gpu:-}" ] &&
  nvidia-smi --query-gpu=compute_mode --format=csv,noheader 2> /dev/null | grep -qi exclusive; then
  echo "$name: left out: its workers share a GPU, and a GPU here takes one process at a time (compute mode Exclusive_Process)"
  exit
fi
rm -rf "$out"
mkdir -p "$out"
exec > >(tee "$out/output.txt") 2>&1
tee=$!
echo "# $name, $(date -u '+%Y-%m-%d %H:%M') UTC, on $device: $("${psring[@]}" --version | head -n 1)"
[ $device = cpu ] || nvidia-smi -L || true

failed=0
# good WHAT, bad WHAT: one line of the result.
good() { echo "ok      $*"; }
bad() { echo "WRONG   $*"; failed=1; }
finish() {
  [ $failed = 0 ] && echo "$name: all is well" || echo "$name: something is wrong, see above"
  exec >&- 2>&-
  wait $tee || true  # until output.txt has the last line
  exit $failed
}

# timed COMMAND...: runs it, and notes how long the longest of them took.
longest=0
timed() {
  local begin=$SECONDS
  "$@"
  [ $((SECONDS - begin)) -le $longest ] || longest=$((SECONDS - begin))
}

# Whether another as long as the longest would end after ten minutes.
late() { [ $((SECONDS + longest)) -gt 580 ]; }

# Workers that share the GPU, where there is one alone.
shared=()
[ $device = cpu ] || shared=(--allow-shared-gpu)

# job LOG ARGS...: psring launch; its exit code.
job() {
  local log=$1
  shift
  timeout 300 "${psring[@]}" launch "$@" > "$out/$log.log" 2>&1
}

# Small, without dropout, convolutions or chance: lost updates show.
mlp=(--model=mlp:784-256-10 --data=digits:train=2048,test=512 --batch-size=32
  --lr=0.05 --device=$device "${shared[@]}")

weights() { echo "$1"/step-*/model.safetensors; }

# same A B WHAT: whether two checkpoints hold the same bytes.
same() {
  if cmp -s $(weights "$1") $(weights "$2"); then good "$3"; else bad "$3: the weights differ"; fi
}
