#!/bin/sh
# psring, from a bundle: finds libtorch on this host, then runs the program.
here=$(dirname "$(readlink -f "$0")")

if [ -n "${PSRING_TORCH:-}" ]; then
  torch=$PSRING_TORCH
  if [ ! -e "$torch/lib/libtorch.so" ]; then
    echo "psring: PSRING_TORCH=$torch has no lib/libtorch.so" >&2
    exit 1
  fi
  # Jobs start in other folders, too.
  torch=$(cd "$torch" && pwd)
else
  # Not in the folder in which it is called: in /tmp, say, that would be anybody's.
  torch=$(cd "$here" && python3 -c 'import importlib.util as u
print(u.find_spec("torch").submodule_search_locations[0])' 2> /dev/null)
fi
# `psring run` gives programs of the user's their own one back.
export PSRING_OUTER_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
# NCCL's wheel lies beside torch's.
LD_LIBRARY_PATH=$here/lib${torch:+:$torch/lib:$torch/../nvidia/nccl/lib}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

wanted=$(cat "$here/libtorch-version")
found=$(cat "$torch/version.py" "$torch/build-version" 2> /dev/null |  # a wheel of Python's, or a plain libtorch
  sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p; s/^\([0-9][0-9.]*\).*/\1/p" | head -n 1)
fault=
if [ -z "$torch" ]; then
  fault="no libtorch here"
elif [ -n "$found" ] && [ "$wanted" != "$found" ]; then
  fault="built with libtorch $wanted, found $found in $torch"
fi
case "${1:-}" in
  worker | launch | compare) needs_worker=yes ;;
  bench | predict) needs_worker=perhaps ;;
  *) needs_worker=no ;;  # a script of `psring run` brings its own
esac
case "$needs_worker $* " in
  yes*" --help "* | yes*" -h "*) needs_worker=perhaps ;;
  "yes compare"*" -- "[!-]*) needs_worker=no ;;
esac
if [ -n "$fault" ] && [ $needs_worker != no ]; then
  if "$here/bin/worker/worker" --version > /dev/null 2>&1; then
    # LD_LIBRARY_PATH may lead to a libtorch, and programs find theirs on the host of their build.
    [ -z "$torch" ] || echo "psring: $fault: workers may fail" >&2
  else
    echo "psring: $fault: the built-in trainer cannot start. Install torch $wanted for python3, or set PSRING_TORCH to the folder of a libtorch $wanted" >&2
    [ $needs_worker = perhaps ] || exit 1
  fi
fi
exec "$here/bin/cli/psring" "$@"
