#!/usr/bin/env bash
# What is installed: driver, CUDA, NCCL, libtorch, and which of them the worker loads.

name=1_versions on_cpu="all but the driver's part"
. "$(dirname "$(readlink -f "$0")")/common.sh"

[ $device = cpu ] || nvidia-smi || bad nvidia-smi
"${psring[@]}" --version || bad "psring --version"
"${psring[@]}" doctor && good doctor || bad doctor
if [ -d "$home/bin" ]; then  # a bundle, whose wrapper sets this
  torch=${PSRING_TORCH:-$(python3 -c 'import importlib.util as u
print(u.find_spec("torch").submodule_search_locations[0])' 2> /dev/null || true)}
  export LD_LIBRARY_PATH=$home/lib${torch:+:$torch/lib:$torch/../nvidia/nccl/lib}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
for program in "$home/bazel-bin/worker/worker" "$home/bin/worker/worker"; do
  [ -x "$program" ] || continue
  "$program" --version || bad "$program does not start"
  libraries=$(ldd "$program" | grep -E 'torch|c10|cuda|nccl|cudnn|not found' || true)
  echo "$libraries"
  case "$libraries" in
    *"not found"*) bad "$program lacks libraries" ;;
    *) good "$program finds its libraries" ;;
  esac
done
finish
