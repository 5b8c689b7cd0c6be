# Sourced by ./psring: finds and installs what a build needs.
# Uses root, state, may_install. Sets torch: what --torch, PSRING_TORCH or an
# earlier --torch asked for (pip, system or a directory), or nothing.

say() { echo "psring: $*" >&2; }
die() { say "$@"; exit 1; }

PACKAGES="g++ python3 git
  libzmq3-dev cppzmq-dev libsodium-dev libcivetweb-dev libprotobuf-dev protobuf-compiler libabsl-dev
  libspdlog-dev libgtest-dev libgmock-dev nlohmann-json3-dev libcli11-dev
  zlib1g-dev libjpeg-dev libpng-dev libjs-chart.js"
BAZEL_PACKAGES="bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-platforms"
TORCH_PIP="torch==2.13.0"

choose_torch() {
  torch=${1:-${PSRING_TORCH:-}}
  if [ -z "$torch" ] && [ -f "$state/torch" ]; then
    torch=$(cat "$state/torch")
  fi
}

remember_torch() {
  mkdir -p "$state"
  echo "$1" > "$state/torch"
}

# in_root COMMAND...: with -c and -m, Python looks for modules in the working folder first, and
# where ./psring is called, in /tmp, say, they may be anybody's.
in_root() { (cd "$root" && "$@"); }

# The torch of the python at $1. (To import it takes long.)
torch_of_python() {
  in_root "$1" -c 'import importlib.util as u
print(u.find_spec("torch").submodule_search_locations[0])' 2> /dev/null
}

# Whether the python at $1 has a torch to build with.
has_torch() {
  local dir
  dir=$(torch_of_python "$1") &&
    [ -d "$dir/include/torch" ] && [ -e "$dir/lib/libtorch.so" ]
}

# The libtorch that a build takes, as third_party/torch.bzl finds it: "pip", "dir"
# or "system", and its folder.
found_torch() {
  local python
  case "$torch" in
    system) ;;
    '' | pip)
      for python in python3 "$root/.venv/bin/python3"; do
        has_torch "$python" || continue
        echo "pip $(torch_of_python "$python")"
        return
      done
      ;;
    *) echo "dir $(readlink -f "$torch")"; return ;;
  esac
  echo "system /usr"
}

# The checksum of the files in which the libtorch in folder $1 tells its version.
torch_version() {
  local file
  for file in version.py build-version include/torch/csrc/api/include/torch/version.h; do
    [ ! -f "$1/$file" ] || cat "$1/$file"
  done | cksum
}

# Prints the directory of the torch of version $1, which has a venv to itself. Only its
# libraries are used, so none of its Python is compiled.
torch_of_version() {
  local venv=$state/torch-$1
  if ! has_torch "$venv/bin/python3"; then
    [ "$may_install" = yes ] ||
      die "no torch $1 in $venv, and --no-setup installs none. --torch=DIR takes one that is there"
    say "installs torch==$1 into $venv (log: $state/setup.log)"
    { [ -x "$venv/bin/python3" ] || logged python3 -m venv "$venv"; } &&
      logged "$venv/bin/python3" -m pip install --no-compile "torch==$1" ||
      die "pip could not install torch==$1. --torch=DIR takes one that is there"
  fi
  torch_of_python "$venv/bin/python3"
}

# Prints the absolute path of the directory that --torch names.
folder_of_torch() {
  [ -d "$1" ] || die "--torch=$1: there is no such directory"
  readlink -f "$1"
}

# choose_other_torch DIR|VERSION: for this time.
choose_other_torch() {
  local dir
  case "$1" in
    [0-9]*.[0-9]*) dir=$(torch_of_version "$1") || exit ;;
    *) dir=$(folder_of_torch "$1") || exit ;;
  esac
  choose_torch "$dir"
}

# Whether torch has still to come from pip, into the repository's .venv.
needs_venv() {
  case "$torch" in
    '' | pip) [ "$(found_torch)" = "system /usr" ] ;;
    system) return 1 ;;
    *)
      [ -d "$torch/include/torch" ] && [ -d "$torch/lib" ] ||
        die "libtorch: $torch has no include/torch or no lib. It must be the directory of a libtorch."
      return 1
      ;;
  esac
}

# Where CUDA's parts may be: third_party/cuda.bzl looks in the same places.
cuda_roots() {
  echo "${CUDA_HOME:-/usr/local/cuda}"
  local python
  for python in python3 "$root/.venv/bin/python3"; do
    in_root "$python" -c 'import importlib.util as u, os
for d in u.find_spec("nvidia").submodule_search_locations:
  for part in os.listdir(d): print(os.path.join(d, part))' 2> /dev/null || true
  done
}

# The first of these files that a root has.
find_in_cuda() {
  local dir file
  cuda_roots | while read -r dir; do
    for file in "$@"; do
      if [ -e "$dir/$file" ]; then echo "$dir/$file"; return; fi
    done
  done | head -n 1
}

has_cuda() {
  [ -n "$(find_in_cuda bin/nvcc)" ] && [ -n "$(find_in_cuda include/nccl.h)" ] &&
    [ -n "$(find_in_cuda include/cuda_runtime_api.h)" ] &&
    [ -n "$(find_in_cuda lib64/libcudart_static.a lib/libcudart_static.a)" ]
}

# The nvcc that a build takes, or "none".
found_cuda() {
  if has_cuda; then find_in_cuda bin/nvcc; else echo none; fi
}

# The wheel that brings what a host with nvcc lacks; nothing where it lacks none.
missing_nccl() {
  local nvcc major
  nvcc=$(find_in_cuda bin/nvcc)
  [ -n "$nvcc" ] && [ -z "$(find_in_cuda include/nccl.h)" ] || return 0
  major=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
  echo "nvidia-nccl-cu$major"
}

# A build without it works, on CPUs.
install_nccl() {
  say "nvcc, but no nccl.h: installs $1 into $root/.venv (log: $state/setup.log)"
  { [ -x "$root/.venv/bin/python3" ] || logged python3 -m venv "$root/.venv"; } &&
    logged "$root/.venv/bin/python3" -m pip install "$1" ||
    say "pip could not install $1: builds without CUDA"
}

wanted_packages() {
  echo $PACKAGES
  # A Bazel of the user's own brings its rules along.
  case "$(command -v bazel || true)" in
    '' | /usr/bin/bazel) echo $BAZEL_PACKAGES ;;
  esac
  if [ "$torch" = system ]; then echo libtorch-dev; fi
  if needs_venv && ! in_root python3 -c 'import ensurepip, venv' 2>/dev/null; then
    echo python3-venv
  fi
}

missing_packages() {
  local wanted installed package
  wanted=$(wanted_packages)
  installed=" $(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
    sed -n 's/^installed //p' | tr '\n' ' ')"
  for package in $wanted; do
    case "$installed" in
      *" $package "*) ;;
      *) printf '%s ' "$package" ;;
    esac
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Runs a command with its output in a log, and shows the end of it on failure.
logged() {
  mkdir -p "$state"
  if ! in_root "$@" > "$state/setup.log" 2>&1 < /dev/null; then
    tail -n 20 "$state/setup.log" >&2
    return 1
  fi
}

install_packages() {
  command -v apt-get > /dev/null ||
    die "this system has no apt-get. Install the equivalents of these Debian packages, then run again: $*"
  [ "$(id -u)" = 0 ] || command -v sudo > /dev/null ||
    die "not root and no sudo. As root: apt-get update && apt-get install -y $*"
  say "installs $* (log: $state/setup.log)"
  logged as_root apt-get update ||
    say "apt-get update failed; using the package lists that are there"
  logged as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "$@" ||
    die "apt-get could not install: $*"
}

install_torch() {
  say "installs $TORCH_PIP into $root/.venv (log: $state/setup.log)"
  [ -x "$root/.venv/bin/python3" ] || logged python3 -m venv "$root/.venv" &&
    logged "$root/.venv/bin/python3" -m pip install "$TORCH_PIP" &&
    logged "$root/.venv/bin/python3" -c 'import torch'
}

# Says what is missing and how to get it, and installs nothing.
refuse() {
  say "missing, and --no-setup installs nothing. To install it:"
  [ -z "$1" ] || say "  apt-get update && apt-get install -y $1"
  if needs_venv; then
    say "  python3 -m venv $root/.venv && $root/.venv/bin/python3 -m pip install $TORCH_PIP"
  fi
  exit 1
}

set_up() {
  local packages nccl
  # Before anything is installed for it.
  case "$root" in
    *[[:space:]]*) die "Bazel does not build in a folder whose path has a space: move this clone out of $root" ;;
  esac
  packages=$(missing_packages)
  nccl=$(missing_nccl)
  if [ -n "$nccl" ] && [ "$may_install" = yes ]; then install_nccl "$nccl"; fi
  if [ -z "$packages" ] && ! needs_venv; then return; fi
  [ "$may_install" = yes ] || refuse "${packages% }"
  [ -z "$packages" ] || install_packages $packages
  if ! needs_venv || install_torch; then return; fi
  [ -z "$torch" ] || die "pip could not install $TORCH_PIP. Other ways: --torch=system or --torch=DIR"
  say "pip could not install $TORCH_PIP (see above): takes Debian's libtorch-dev instead." \
    "To try pip again: ./psring build --torch=pip"
  torch=system
  install_packages libtorch-dev
  remember_torch system
}
