#!/bin/sh
# psring, from a bundle: finds libtorch on this host, then runs the program.
here=$(dirname "$(readlink -f "$0")")

if [ -n "${PSRING_TORCH:-}" ]; then
  torch=$PSRING_TORCH
  if [ ! -e "$torch/lib/libtorch.so" ]; then
    echo "psring: PSRING_TORCH=$torch has no lib/libtorch.so" >&2
    exit 1
  fi
else
  torch=$(python3 -c 'import importlib.util as u
print(u.find_spec("torch").submodule_search_locations[0])' 2> /dev/null)
fi
wanted=$(cat "$here/libtorch-version")
case ${1:-} in
  compare | bench | predict | launch | worker) starts_workers=yes ;;
  *) starts_workers= ;;
esac
if [ -z "$starts_workers" ]; then
  :  # a script of `psring run` brings its own
elif [ -z "$torch" ]; then
  echo "psring: no libtorch here: the built-in trainer cannot start. Install torch $wanted for python3, or set PSRING_TORCH." >&2
else  # a wheel of Python's, or a plain libtorch
  found=$(cat "$torch/version.py" "$torch/build-version" 2> /dev/null |
    sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p; s/^\([0-9][0-9.]*\).*/\1/p" | head -n 1)
  [ -z "$found" ] || [ "$wanted" = "$found" ] ||
    echo "psring: built with libtorch $wanted, found $found in $torch: workers may not start" >&2
fi
# `psring run` gives programs of the user's their own one back.
export PSRING_OUTER_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
# NCCL's wheel lies beside torch's.
LD_LIBRARY_PATH=$here/lib${torch:+:$torch/lib:$torch/../nvidia/nccl/lib}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$here/bin/cli/psring" "$@"
