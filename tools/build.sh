# Sourced by ./psring: builds what has changed since the last build.

PROGRAMS="//cli:psring //ps:ps //worker:worker //lab/bench:rank //python/capi:libpsring.so"
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

# What a build has beside the sources, a line each.
build_key() {
  local found
  found=$(found_torch)
  echo "torch=$found"
  echo "torch_version=$(torch_version "${found#* }")"
  echo "cuda=$(found_cuda)"
  echo "cuda_home=${CUDA_HOME:-}"
  echo "commit=$(current_commit)"
}

# What the last build has of that.
built_with() { sed -n "s/^$1=//p" "$state/built"; }

# In a repository of another user, too, as root has it under sudo.
current_commit() {
  git -c safe.directory="$root" -C "$root" rev-parse HEAD 2> /dev/null || true
}

# The last build stays where this call asks for nothing else: under sudo or ssh
# and in a venv the PATH leads to another python3, and CUDA_HOME is not set.
has_torch_asked_for() {
  local built folder
  built=$(built_with torch)
  folder=${built#* }
  case "$torch" in
    '') ;;
    pip | system) [ "${built%% *}" = "$torch" ] || return 1 ;;
    *) [ "$folder" = "$(readlink -f "$torch")" ] || return 1 ;;
  esac
  [ -d "$folder/include/torch" ] && [ "$(built_with torch_version)" = "$(torch_version "$folder")" ]
}

has_cuda_asked_for() {
  [ -z "${CUDA_HOME:-}" ] || [ "$CUDA_HOME" = "$(built_with cuda_home)" ] ||
    [ "$(built_with cuda)" = "$(found_cuda)" ]
}

is_built() {
  [ -f "$state/built" ] && has_torch_asked_for && has_cuda_asked_for &&
    [ "$(built_with commit)" = "$(current_commit)" ] || return 1
  local program
  for program in cli/psring ps/ps worker/worker lab/bench/rank python/capi/libpsring.so; do
    [ -x "$root/bazel-bin/$program" ] || return 1
  done
  [ -z "$(cd "$root" && find $(sources) -newer "$state/built" -print -quit)" ]
}

# What the Bazel on the PATH must be told, as it finds libtorch through WORKSPACE:
# 7 prefers modules, 8 switches WORKSPACE off, 9 has none. Debian's, which is
# 4.2.3, reports no version.
choose_bazel_flags() {
  local version
  version=$(bazel --version 2> /dev/null | sed -n 's/^bazel \([0-9][0-9]*\)\..*/\1/p')
  bazel_flags=()
  [ -n "$version" ] || return 0
  if [ "$version" -lt 4 ] || [ "$version" -gt 8 ]; then
    die "psring builds with Bazel 4 to 8, and $(command -v bazel) is version $version." \
      "Take it off the PATH (psring then installs Debian's), or set USE_BAZEL_VERSION=8.x if it is bazelisk."
  fi
  if [ "$version" -ge 7 ]; then bazel_flags+=(--noenable_bzlmod); fi
  if [ "$version" -ge 8 ]; then bazel_flags+=(--enable_workspace); fi
}

# bazel COMMAND ARGS... in the repository, with the libtorch that was chosen.
# bazel_startup: what its caller tells Bazel before the command, if anything;
# bazel_prefix: what runs it, if anything.
# While all goes well it shows its progress alone: on a terminal one line that is
# rewritten, otherwise a line a minute.
run_bazel() {
  local bazel_flags flags=(--ui_event_filters=-info,-debug --noshow_loading_progress)
  choose_bazel_flags
  [ -z "$torch" ] || flags+=("--repo_env=PSRING_TORCH=$torch")
  [ "$1" = query ] || ! has_cuda || flags+=(--config=cuda)
  if [ -t 2 ]; then
    flags+=(--ui_actions_shown=1)
  else
    flags+=(--color=no --curses=no --show_progress_rate_limit=60)
  fi
  (cd "$root" && ${bazel_prefix[@]+"${bazel_prefix[@]}"} bazel ${bazel_startup[@]+"${bazel_startup[@]}"} "$1" ${bazel_flags[@]+"${bazel_flags[@]}"} "${flags[@]}" "${@:2}")
}

# What a first build takes: about 20 minutes of one core.
first_build_time() {
  local cores
  cores=$(nproc)
  echo "about $((20 / cores + 1)) minutes on $cores cores"
}

build() {
  set_up
  mkdir -p "$state"
  build_key > "$state/building.$$"
  if [ -f "$state/built" ]; then
    say "builds what has changed"
  else
    say "builds for the first time: $(first_build_time)"
  fi
  run_bazel build --show_result=0 $PROGRAMS "$@" || die "the build failed; see above"
  # As old as the start of the build: what changed meanwhile is newer.
  mv "$state/building.$$" "$state/built"
}

# Of several that start at once, as under srun, one builds and the others wait.
# Bazel's server must not inherit the lock.
build_if_stale() {
  is_built && return
  mkdir -p "$state"
  # Only read, as it may be that of another user.
  [ -e "$state/lock" ] || : > "$state/lock"
  (flock 9 && { is_built || build; } 9<&-) 9< "$state/lock"
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

Warnings of the compiler are errors, and another compiler may have other warnings:
./psring build --copt=-Wno-error lets them through.

Builds with Debian's Bazel, which psring installs where there is none, and with
any Bazel from 4 to 8 on the PATH.

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
    *) wish=$(folder_of_torch "$wish") ;;
  esac
  choose_torch "$wish"
  build "$@"
  [ -z "$wish" ] || remember_torch "$wish"
}
