# Sourced by ./psring: builds what has changed since the last build.

PROGRAMS="//cli:psring //ps:ps //worker:worker //lab/bench:rank"
# What the programs are made of: every folder that Bazel builds from, except those
# that only people and tests read.
sources() {
  echo BUILD WORKSPACE .bazelrc
  local file
  for file in */BUILD */*/BUILD; do
    case "$file" in
      bazel-* | docs/* | examples/* | tests/*) ;;
      *) echo "${file%%/*}" ;;
    esac
  done | sort -u
}

# What a build depends on beside the sources.
build_key() {
  echo "torch=$torch python3=$(command -v python3 || true)" \
    "cuda_home=${CUDA_HOME:-}" \
    "commit=$(git -C "$root" rev-parse HEAD 2> /dev/null || true)"
}

is_built() {
  [ -f "$state/built" ] && [ "$(cat "$state/built")" = "$(build_key)" ] || return 1
  local program
  for program in cli/psring ps/ps worker/worker lab/bench/rank; do
    [ -x "$root/bazel-bin/$program" ] || return 1
  done
  [ -z "$(cd "$root" && find $(sources) -newer "$state/built" -print -quit)" ]
}

# bazel COMMAND ARGS... in the repository, with the libtorch that was chosen.
run_bazel() {
  local flags=()
  [ -z "$torch" ] || flags+=("--repo_env=PSRING_TORCH=$torch")
  ! has_cuda || flags+=(--config=cuda)
  [ -t 2 ] || flags+=(--color=no --curses=no --show_progress_rate_limit=60)
  (cd "$root" && bazel "$1" ${flags[@]+"${flags[@]}"} "${@:2}")
}

build() {
  set_up
  mkdir -p "$state"
  build_key > "$state/building"
  say "builds (the first time takes some minutes)"
  run_bazel build $PROGRAMS "$@" || die "the build failed; see above"
  # As old as the start of the build: what changed meanwhile is newer.
  mv "$state/building" "$state/built"
}

build_usage() {
  cat << END
Usage: ./psring build [--torch=pip|system|DIR|auto] [BAZEL FLAGS]

Builds the programs. --torch says which libtorch, for this and later builds:
  pip     $TORCH_PIP of the active python3, or of the repository's .venv
  system  Debian's libtorch-dev
  DIR     a directory with include/ and lib/
  auto    \$PSRING_TORCH, else pip, else system: the first that works (default)

With support for GPUs where nvcc and nccl.h are found: in \$CUDA_HOME (else
/usr/local/cuda) or in the nvidia-* wheels of python3. CUDA_HOME=none: without.

Example: ./psring build --torch=system
END
}

build_command() {
  local wish=
  case "${1:-}" in
    -h | --help) build_usage; return ;;
    --torch=?*) wish=${1#--torch=}; shift ;;
    --torch*) say "--torch wants a value: --torch=pip|system|DIR|auto"; exit 2 ;;
  esac
  case "$wish" in
    auto) wish=; rm -f "$state/torch" ;;
    '' | pip | system) ;;
    *) wish=$(readlink -f "$wish") ;;
  esac
  choose_torch "$wish"
  build "$@"
  [ -z "$wish" ] || remember_torch "$wish"
}
