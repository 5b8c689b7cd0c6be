#!/usr/bin/env bash
# A bundle of the real programs runs from another folder, with nothing of the
# build's environment but libtorch.
set -euo pipefail

root=$PWD
. tools/bundle.sh

fail() { echo "FAILED: $*"; exit 1; }

cd "$TEST_TMPDIR"
pack "$root" a:b.tar.gz  # to tar a file on host a, if it is not told otherwise
mkdir elsewhere
cd elsewhere
tar xf ../a:b.tar.gz
cd psring-bundle

for library in lib/*; do
  case "${library#lib/}" in
    libtorch* | libc10* | libcuda* | libcupti* | libcufile* | libnccl* | libc.so*) fail "carries $library" ;;
  esac
done
[ -e lib/libzmq.so.5 ] || fail "carries no ZeroMQ"
[ -e LICENSE ] || fail "carries no licence"

# Where libtorch was when the programs were built.
torch=$(ldd bin/worker/worker | awk '$1 == "libtorch.so" { sub("/lib/libtorch.so", "", $3); print $3 }')
case "$torch" in
  */torch) export PSRING_TORCH=$torch ;;
esac

bare() { env -i PATH=/usr/bin:/bin HOME=/ ${PSRING_TORCH:+PSRING_TORCH=$PSRING_TORCH} "$@"; }

bare ./psring doctor > out 2>&1 || { cat out; fail "doctor"; }
for program in cli/psring ps/ps worker/worker lab/bench/rank; do
  bare LD_LIBRARY_PATH="$PWD/lib${PSRING_TORCH:+:$PSRING_TORCH/lib}" \
    ldd "bin/$program" > out
  ! grep "not found" out || fail "$program lacks libraries"
  grep -q "$PWD/lib/libzmq" out || fail "$program takes the system's ZeroMQ"
done
bare ./psring launch --workers=2 -- --data=digits:train=64,test=16 --steps=2 --device=cpu \
  > out 2>&1 || { cat out; fail "launch"; }
bare LD_LIBRARY_PATH=/of/the/user ./psring run -n 1 -- sh -c 'echo "path $LD_LIBRARY_PATH"' \
  > out 2>&1 || { cat out; fail "run"; }
grep -q "path /of/the/user$" out || { cat out; fail "a script has the bundle's libraries"; }

# found_version FILE TEXT: what is said of a libtorch whose FILE tells its version.
found_version() {
  rm -rf "$TEST_TMPDIR/torch"
  mkdir -p "$TEST_TMPDIR/torch/lib"
  touch "$TEST_TMPDIR/torch/lib/libtorch.so"
  echo "$2" > "$TEST_TMPDIR/torch/$1"
  bare PSRING_TORCH="$TEST_TMPDIR/torch" ./psring ${3:-compare --help} 2>&1 > /dev/null
}
wanted=$(cat libtorch-version)
for said in "version.py __version__ = '1.2.3+cu130'" "build-version 1.2.3+cpu"; do
  found_version "${said%% *}" "${said#* }" > out || true
  grep -q "built with libtorch $wanted, found 1.2.3 in" out || { cat out; fail "of another libtorch: $said"; }
done
for command in worker "launch --workers=2" "compare -- --device=cpu"; do
  code=0
  found_version build-version 1.2.3 "$command" > out || code=$?
  [ $code = 1 ] && grep -q "Install torch $wanted" out && [ "$(wc -l < out)" = 1 ] ||
    { cat out; fail "$command with another libtorch: $code"; }
done
found_version build-version 1.2.3 "compare -- false" > out || true
! grep libtorch out || fail "of another libtorch, to who compares a script"
found_version build-version "$wanted+cpu" > out || true
! grep libtorch out || fail "of the same libtorch"
found_version build-version 1.2.3 "run --help" > out || true
! grep libtorch out || fail "of another libtorch, to who runs a script"

# Where others may write, as in /tmp, they can have put a libtorch.
mkdir -p "$TEST_TMPDIR/shared/torch/lib"
touch "$TEST_TMPDIR/shared/torch/__init__.py" "$TEST_TMPDIR/shared/torch/lib/libtorch.so"
echo "__version__ = '1.2.3'" > "$TEST_TMPDIR/shared/torch/version.py"
bundle=$PWD
(cd "$TEST_TMPDIR/shared" && env -i PATH=/usr/bin:/bin HOME=/ "$bundle/psring" compare --help) > out 2>&1 || true
! grep "found 1.2.3" out || fail "takes the libtorch of the folder in which it is called"

code=0
bare PSRING_TORCH=/nowhere ./psring doctor > out 2>&1 || code=$?
[ $code = 1 ] && grep -q "PSRING_TORCH=/nowhere has no" out || fail "a wrong PSRING_TORCH"
echo "1 bundle passed"
