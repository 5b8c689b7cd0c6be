#!/usr/bin/env bash
# Tests of ./psring in a repository of its own, with stand-ins for the programs
# that install and build. Each test_* function below is one case.
set -u
: "${TEST_TMPDIR:?is not set: bazel test //tests/tools/... sets it}"

source_root=$PWD
failures=0

# A fresh repository and fresh stand-ins; what they were asked is in $stub/log.
set_up_world() {
  world=$(mktemp -d "$TEST_TMPDIR/world-XXXXXX")
  repo=$world/repo stub=$world/stub
  mkdir -p "$repo/cli" "$stub/bin" "$world/elsewhere"
  cp -L "$source_root/psring" "$repo/"
  cp -L "$source_root/cli/usage.txt" "$repo/cli/"
  cp -rL "$source_root/tools" "$repo/"
  printf '#!/bin/sh\necho "ok       links"\n' > "$repo/tools/check.sh"
  touch "$repo/WORKSPACE" "$repo/BUILD" "$repo/.bazelrc"
  mkdir -p "$repo/common/net" "$repo/newcomer" "$repo/tests"
  touch "$repo/common/net/BUILD" "$repo/newcomer/BUILD" "$repo/tests/BUILD"
  : > "$stub/log"
  : > "$stub/installed"
  echo "bazel no_version" > "$stub/bazel-version"  # as Debian's
  unset PSRING_TORCH CI
  export CUDA_HOME=$world/no-cuda XDG_CACHE_HOME=$world/cache

  write_stub dpkg-query 'cat "$STUB/installed"'
  write_stub apt-get '
    [ "$1" = update ] && exit 0
    [ ! -e "$STUB/apt-fails" ] || exit 100
    for p in "$@"; do case $p in -*|install) ;; *) echo "installed $p" >> "$STUB/installed" ;; esac; done'
  write_stub sudo 'exec "$@"'
  write_stub python3 '
    case "$*" in
      *find_spec*) exit 1 ;;
      *safetensors*|*mypy.version*) exit 1 ;;
      *ensurepip*) exit 0 ;;
      "-m venv"*) mkdir -p "$3/bin"; cp "$STUB/bin/venv-python3" "$3/bin/python3" ;;
    esac'
  write_stub venv-python3 '
    case "$*" in
      *find_spec*) [ -e "$STUB/torch" ] && echo "$STUB/torch" ;;
      *"import numpy, safetensors"*) [ -e "$STUB/safetensors" ] ;;
      "-m pip install safetensors"*) [ ! -e "$STUB/pip-fails" ] && touch "$STUB/safetensors" ;;
      *mypy.version*) [ -e "$STUB/mypy" ] ;;
      "-m pip install mypy"*) [ ! -e "$STUB/python-is-3.9" ] && touch "$STUB/mypy" ;;
      "-m pip"*) [ ! -e "$STUB/pip-fails" ] || { echo "no network"; exit 1; }
        mkdir -p "$STUB/torch/include/torch" "$STUB/torch/lib"
        touch "$STUB/torch/lib/libtorch.so" ;;
    esac'
  write_stub bazel '
    if [ "$*" = --version ]; then cat "$STUB/bazel-version"; exit; fi
    [ ! -e "$STUB/build-fails" ] || exit 1
    for p in cli/psring ps/ps worker/worker lab/bench/rank python/capi/libpsring.so; do
      mkdir -p "bazel-bin/${p%/*}"
      printf "#!/bin/sh\necho ran \$PWD \$*\n" > "bazel-bin/$p"
      chmod +x "bazel-bin/$p"
    done'
  export STUB=$stub
  export PATH=$stub/bin:/usr/bin:/bin
}

write_stub() {
  printf '#!/bin/bash\necho "%s $*" >> "$STUB/log"\n%s\n' "$1" "$2" > "$stub/bin/$1"
  chmod +x "$stub/bin/$1"
}

fail() {
  echo "FAILED $current: $*"
  sed 's/^/  output: /' "$world/out"
  sed 's/^/  log: /' "$stub/log"
  failures=$((failures + 1))
}

# run CODE ARGS...: ./psring must end with CODE.
run() {
  local want=$1 code=0
  shift
  (cd "$world/elsewhere" && "${psring:-$repo/psring}" "$@") > "$world/out" 2>&1 || code=$?
  [ $code = "$want" ] || fail "psring $*: exit code $code, not $want"
}

says() { grep -qF -- "$1" "$world/out" || fail "does not say: $1"; }
asked() { grep -qE -- "$1" "$stub/log" || fail "was not asked: $1"; }
not_asked() { ! grep -qE -- "$1" "$stub/log" || fail "was asked: $1"; }
forget() { : > "$stub/log"; }

test_no_setup_prints_the_commands_and_installs_nothing() {
  run 1 --no-setup doctor
  says "apt-get update && apt-get install -y g++"
  says "pip install torch=="
  not_asked "^(apt-get|bazel)|-m pip"
}

test_first_run_installs_with_one_call_builds_and_runs_where_it_was_called() {
  run 0 compare --epochs=1
  [ "$(grep -c 'apt-get install' "$stub/log")" = 1 ] || fail "not one apt-get install"
  asked "apt-get install .*libzmq3-dev.*libjs-chart.js"
  not_asked "bazel-bootstrap"  # there is a bazel
  asked "pip install torch=="
  asked "bazel build .*//cli:psring"
  says "installs g++"
  says "ran $world/elsewhere compare --epochs=1"
}

test_nothing_is_installed_where_bazel_cannot_build() {
  mv "$repo" "$world/my repo"
  psring="$world/my repo/psring" run 1 doctor
  says "move this clone out of $world/my repo"
  psring="$world/my repo/psring" run 1 test --quick
  not_asked "^(apt-get|bazel)|-m (venv|pip)"
}

test_without_a_bazel_debians_is_named() {
  rm "$stub/bin/bazel"
  run 1 --no-setup doctor
  says "bazel-bootstrap bazel-rules-java"
}

test_second_run_builds_nothing() {
  run 0 doctor
  forget
  run 0 doctor
  says "ran $world/elsewhere doctor"
  not_asked "^(apt-get|bazel)|-m pip"
}

test_a_changed_source_is_built_whatever_its_folder() {
  local file
  for file in common/new.cc common/net/new.cc newcomer/new.cc WORKSPACE; do
    run 0 doctor
    forget
    touch "$repo/$file"
    run 0 doctor
    asked "bazel build"
  done
}

test_a_changed_test_is_not_built() {
  run 0 doctor
  forget
  touch "$repo/tests/new_test.cc" "$repo/report.html"
  run 0 doctor
  not_asked "bazel"
}

# The torch of a python3 that $1 (in a PATH of its own) has.
has_python_with_torch() {
  mkdir -p "$1/bin" "$1/torch/include/torch" "$1/torch/lib"
  touch "$1/torch/lib/libtorch.so"
  echo "__version__ = '2.13.0'" > "$1/torch/version.py"
  printf '#!/bin/bash\ncase "$*" in *find_spec*nvidia*) exit 1 ;; *find_spec*) echo "%s" ;; esac\n' \
    "$1/torch" > "$1/bin/python3"
  chmod +x "$1/bin/python3"
}

# sudo and ssh have another PATH and no CUDA_HOME; a venv has another python3.
test_another_environment_builds_nothing() {
  has_python_with_torch "$world/mine"
  has_python_with_torch "$world/other"
  has_nvcc
  touch "$CUDA_HOME/include/nccl.h"
  PATH=$world/mine/bin:$PATH run 0 doctor
  asked "bazel build .*--config=cuda"
  forget
  CUDA_HOME= run 0 doctor
  PATH=$world/other/bin:$PATH run 0 doctor
  not_asked "^(apt-get|bazel)|-m pip"
  touch "$repo/common/new.cc"
  PATH=$world/other/bin:$PATH run 0 doctor
  asked "bazel build"
}

test_a_libtorch_that_changes_is_built_with() {
  has_python_with_torch "$world/mine"
  export PATH=$world/mine/bin:$PATH
  run 0 doctor
  echo "__version__ = '2.14.0'" > "$world/mine/torch/version.py"
  forget
  run 0 doctor
  asked "bazel build"
  forget
  run 0 doctor
  not_asked "bazel"
  rm -r "$world/mine"
  run 0 doctor
  asked "bazel build"
}

test_a_build_stays_where_the_same_libtorch_is_asked_for() {
  has_python_with_torch "$world/mine"
  PATH=$world/mine/bin:$PATH run 0 doctor
  ln -s "$world/mine/torch" "$world/link"
  forget
  PSRING_TORCH=$world/link run 0 doctor
  PSRING_TORCH=pip run 0 doctor
  not_asked "bazel"
  has_python_with_torch "$world/other"
  PSRING_TORCH=$world/other/torch run 0 doctor
  asked "bazel build .*--repo_env=PSRING_TORCH=$world/other/torch"
  forget
  PSRING_TORCH=pip run 0 doctor
  asked "bazel build .*--repo_env=PSRING_TORCH=pip"
}

test_cuda_that_is_asked_for_is_built_with() {
  run 0 doctor
  CUDA_HOME=none run 0 doctor
  forget
  has_nvcc
  touch "$CUDA_HOME/include/nccl.h"
  run 0 doctor
  not_asked "bazel"  # CUDA_HOME is what it was
  ln -s "$CUDA_HOME" "$world/cuda"
  CUDA_HOME=$world/cuda run 0 doctor
  asked "bazel build .*--config=cuda"
  forget
  CUDA_HOME=none run 0 doctor
  asked "bazel build"
  not_asked "config=cuda"
}

test_a_failed_build_is_tried_again() {
  touch "$stub/build-fails"
  run 1 doctor
  says "the build failed"
  rm "$stub/build-fails"
  run 0 doctor
  says "ran"
}

test_it_works_through_a_symlink() {
  ln -s "$repo/psring" "$world/link"
  psring=$world/link run 0 doctor
  says "ran $world/elsewhere doctor"
}

test_where_pip_cannot_debians_libtorch_is_taken_and_remembered() {
  touch "$stub/pip-fails"
  run 0 doctor
  says "no network"
  says "takes Debian's libtorch-dev instead"
  asked "apt-get install .*libtorch-dev"
  asked "bazel build .*--repo_env=PSRING_TORCH=system"
  forget
  touch "$repo/common/new.cc"
  run 0 doctor
  not_asked "pip"
  asked "bazel build .*--repo_env=PSRING_TORCH=system"
}

test_forced_pip_does_not_fall_back() {
  touch "$stub/pip-fails"
  run 1 build --torch=pip
  says "pip could not install"
  not_asked "libtorch-dev"
}

test_a_forced_libtorch_is_remembered_until_auto() {
  run 0 build --torch=system
  asked "apt-get install .*libtorch-dev"
  not_asked "pip"
  forget
  touch "$repo/common/new.cc"
  run 0 doctor
  asked "bazel build .*--repo_env=PSRING_TORCH=system"
  forget
  run 0 build --torch=auto
  not_asked "repo_env"
}

test_a_directory_must_be_a_libtorch() {
  run 1 build --torch="$world/elsewhere"
  says "no include/torch"
  mkdir -p "$world/elsewhere/include/torch" "$world/elsewhere/lib"
  run 0 build --torch=.
  asked "bazel build .*--repo_env=PSRING_TORCH=$world/elsewhere"
  run 1 build --torch=/nowhere/at/all
  says "--torch=/nowhere/at/all: there is no such directory"
}

test_a_bundle_is_made_for_the_libtorch_that_is_asked_for() {
  write_stub strip ':'
  write_stub ldd 'echo "libzmq.so.5 => $STUB/log (0x0)"'
  cp -L "$source_root/LICENSE" "$repo/"
  run 0 bundle --torch=2.11.0
  asked "python3 -m venv $repo/.psring/torch-2.11.0"
  asked "pip install --no-compile torch==2.11.0"
  asked "bazel build .*--repo_env=PSRING_TORCH=$stub/torch"
  forget
  run 0 bundle --torch=2.11.0 other.tar.gz
  not_asked "pip|bazel build"
  [ -e "$world/elsewhere/other.tar.gz" ] || fail "no other.tar.gz"
  run 0 bundle --torch=2.11.0 new/other.tar.gz
  [ -e "$world/elsewhere/new/other.tar.gz" ] || fail "no new/other.tar.gz"
  run 1 bundle --torch=/nowhere
  says "no such directory"
}

test_a_bundle_or_wheel_that_cannot_be_written_leaves_nothing_behind() {
  write_stub strip ':'
  write_stub ldd 'echo "libzmq.so.5 => $STUB/log (0x0)"'
  cp -L "$source_root/LICENSE" "$repo/"
  mkdir "$world/temporary"
  export TMPDIR=$world/temporary
  run 1 bundle "$repo/WORKSPACE/bundle.tar.gz"
  says "cannot write $repo/WORKSPACE/bundle.tar.gz"
  run 1 bundle "$world"
  run 1 wheel "$repo/WORKSPACE/dist"
  says "cannot write into $repo/WORKSPACE/dist"
  not_asked "bazel build"
  write_stub tar 'echo half > "$4"; exit 2'
  run 1 bundle
  says "cannot write psring-bundle.tar.gz"
  [ -z "$(ls "$world/temporary" "$world/elsewhere" | grep -v :)" ] ||
    fail "leaves $(ls "$world/temporary" "$world/elsewhere")"
  unset TMPDIR
}

test_the_environments_libtorch_wins_over_a_remembered_one() {
  run 0 build --torch=system
  mkdir -p "$world/torch/include/torch" "$world/torch/lib"
  export PSRING_TORCH=$world/torch
  run 0 doctor
  asked "bazel build .*--repo_env=PSRING_TORCH=$world/torch"
}

test_a_failed_installation_shows_why_and_names_the_packages() {
  touch "$stub/apt-fails"
  run 1 doctor
  says "apt-get could not install: g++"
}

has_nvcc() {
  mkdir -p "$CUDA_HOME/bin" "$CUDA_HOME/include" "$CUDA_HOME/lib64"
  touch "$CUDA_HOME/include/cuda_runtime_api.h" "$CUDA_HOME/lib64/libcudart_static.a"
  printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.88"\n' > "$CUDA_HOME/bin/nvcc"
  chmod +x "$CUDA_HOME/bin/nvcc"
}

test_without_nvcc_it_builds_for_cpus() {
  run 0 doctor
  asked "bazel build"
  not_asked "config=cuda|nccl"
}

test_with_nvcc_and_nccl_it_builds_for_gpus() {
  has_nvcc
  touch "$CUDA_HOME/include/nccl.h"
  run 0 doctor
  asked "bazel build .*--config=cuda"
  not_asked "pip install nvidia"
}

test_with_nvcc_alone_it_fetches_nccl() {
  has_nvcc
  run 0 doctor
  says "nvcc, but no nccl.h"
  asked "venv-python3 -m pip install nvidia-nccl-cu13"
}

test_where_nccl_cannot_be_had_it_builds_for_cpus() {
  has_nvcc
  mkdir -p "$stub/torch/include/torch" "$stub/torch/lib"
  touch "$stub/torch/lib/libtorch.so" "$stub/pip-fails"
  export PSRING_TORCH=$stub/torch
  run 0 doctor
  says "builds without CUDA"
  asked "bazel build"
  not_asked "config=cuda"
}

test_tests_get_the_packages_that_read_checkpoints() {
  run 0 test --quick
  asked "venv-python3 -m pip install safetensors numpy"
  asked "venv-python3 -m pip install mypy==2"
  asked "bazel test"
  forget
  run 0 test --quick
  not_asked "pip install"
}

test_a_python_without_this_mypy_gets_the_other_packages() {
  touch "$stub/python-is-3.9"
  run 0 test --quick
  [ -e "$stub/safetensors" ] || fail "has no safetensors"
  says "the check of types is skipped"
  asked "bazel test"
}

test_tests_run_without_the_packages_that_read_checkpoints() {
  run 0 doctor
  touch "$stub/pip-fails"
  run 0 test --quick
  says "are skipped"
  asked "bazel test"
}

test_tests_get_clang_format() {
  run 0 doctor
  cp -as /usr/bin "$world/bin"
  rm -f "$world/bin"/clang-format*
  export PATH=$stub/bin:$world/bin
  run 0 test --quick
  asked "apt-get install .*clang-format"
  touch "$stub/apt-fails"
  run 0 test --quick
  says "no clang-format"
}

test_engines_are_installed_apart_and_tested_alone() {
  run 0 test --engines
  asked "apt-get install .*slurm-wlm"
  asked "python3 -m venv $world/cache/psring/engines"
  asked "venv-python3 -m pip install pyspark.*ray"
  asked "venv-python3 -m pytest .*tests/engines"
  not_asked "bazel test"
  says "installs pyspark"
}

test_the_wheel_is_made_and_tested_alone() {
  write_stub python3 '
    case "$*" in
      "-m auditwheel repair --wheel-dir"*) mkdir -p "$5"; touch "$5/psring-1-py3-none-any.whl" ;;
      "-m pytest"*) echo "tested $PSRING_WHEEL" ;;
    esac'
  run 0 test --wheel
  asked "bazel build.*//ps:ps"
  asked "python3 .*tools/make_wheel.py $repo/bazel-bin"
  asked "python3 -m pytest .*tests/wheel"
  says "tested $repo/.psring/wheel/psring-1-py3-none-any.whl"
  not_asked "bazel test"
}

test_what_uses_libtorch_is_tested_with_another_one() {
  write_stub bazel 'case "$*" in *" query "*) echo //tests/worker:all ;; esac'
  run 0 test --torch=2.11.0
  asked "pip install --no-compile torch==2.11.0"
  asked "bazel --output_base=.*/torch-base .*query .*--repo_env=PSRING_TORCH=$stub/torch"
  asked "bazel --output_base=.*/torch-base .*test .*--repo_env=PSRING_TORCH=$stub/torch.* //tests/worker:all"
  not_asked "config=asan"
  run 2 test --torch=
  says "--torch wants a value"
  run 1 test --torch=/nowhere
  says "no such directory"
}

test_continuous_integration_tests_with_an_older_libtorch_too() {
  write_stub df 'echo "Avail"; echo "${FREE:-100}G"'
  run 0 test
  not_asked "torch==2.11.0|//tests/worker"
  CI=true run 0 test --quick
  not_asked "torch==2.11.0|//tests/worker"
  CI=true run 0 test
  asked "pip install --no-compile torch==2.11.0"
  asked "bazel test .*--repo_env=PSRING_TORCH=$stub/torch .*//tests/worker/torch/\.\.\."
  forget
  CI=true FREE=5 run 0 test
  says "GB are free: not tested with libtorch 2.11.0"
  not_asked "//tests/worker"
  rm -r "$repo/.psring/torch-2.11.0"
  touch "$stub/pip-fails"
  CI=true run 0 test
  says "not tested with libtorch 2.11.0, which pip could not install"
  not_asked "//tests/worker"
}

test_checks_count_with_the_tests() {
  run 0 test --quick
  says "ok       links"
  asked "count_tests.py .*/test-default.json=0 .*/checks.txt=0"
  printf '#!/bin/sh\nexit 1\n' > "$repo/tools/check.sh"
  forget
  run 0 test --quick
  asked "count_tests.py .*/checks.txt=1"
}

no_clang() {
  printf '#!/bin/sh\nexit 1\n' > "$stub/bin/clang-14" && chmod +x "$stub/bin/clang-14"
}

test_the_sanitizers_take_clang_and_a_bazel_of_its_own() {
  write_stub clang-14 'echo "$STUB/clang"'
  mkdir -p "$stub/clang/lib/linux"
  touch "$stub/clang/lib/linux/libclang_rt.fuzzer-$(uname -m).a"
  run 0 test
  not_asked "apt-get install .*clang-14"
  for sanitizer in asan tsan; do
    asked "bazel --output_base=.*/clang-base .*test .*--config=$sanitizer --config=clang .*//tests/ring"
  done
}

test_the_sanitizers_run_with_gcc_where_clang_cannot_be_installed() {
  run 0 doctor
  no_clang
  touch "$stub/apt-fails"
  run 0 test
  asked "apt-get install .*clang-14 libclang-rt-14-dev"
  says "no clang-14"
  asked "bazel test .*--config=asan "
  not_asked "config=clang"
}

# Fuzz targets in the repository; a fuzzer ends with $1.
set_up_fuzzers() {
  mkdir -p "$repo/tests/fuzz" "$repo/.psring/fuzz-bin/tests/fuzz"
  local target
  for target in frame link; do
    touch "$repo/tests/fuzz/${target}_fuzz.cc"
    printf '#!/bin/bash\necho "fuzzer %s $*" >> "$STUB/log"\n%s\nexit %s\n' \
      "$target" 'echo "Done 812 runs in 7 second(s)" >&2' "$1" \
      > "$repo/.psring/fuzz-bin/tests/fuzz/${target}_fuzzer"
    chmod +x "$repo/.psring/fuzz-bin/tests/fuzz/${target}_fuzzer"
  done
}

test_fuzzing_takes_clang_and_a_bazel_of_its_own() {
  set_up_fuzzers 0
  no_clang
  run 0 test --fuzz
  asked "apt-get install .*clang-14 libclang-rt-14-dev"
  asked "bazel --output_base=.*/clang-base .*build .*--config=fuzz.*frame_fuzzer //tests/fuzz:link_fuzzer"
  not_asked "bazel .* test "
  says "ok       frame: 812 inputs"
  asked "fuzzer link .*-max_total_time=30 "
  asked "count_tests.py .*/fuzz.txt=0"
}

test_fuzzing_takes_seconds_and_targets() {
  set_up_fuzzers 77
  run 0 test --fuzz=7 frame
  asked "fuzzer frame -max_total_time=7 "
  not_asked "fuzzer link"
  says "FAILED   frame"
  asked "count_tests.py .*/fuzz.txt=1"
  run 1 test --fuzz nothing
  says "there is no target nothing"
  run 2 test --fuzz=1m
  says "--fuzz=1m is no number of seconds"
}

test_debians_bazel_needs_no_flags() {
  run 0 doctor
  asked "bazel build "
  not_asked "bzlmod|workspace"
}

test_each_bazel_is_told_to_use_workspace_as_it_understands_it() {
  local version
  for version in 4.2.3 5.4.1 6.5.0- 7.4.1 8.0.0; do
    echo "bazel $version" > "$stub/bazel-version"
    forget
    run 0 build
    asked "bazel build "
    case $version in
      7.*) asked "bazel build .*--noenable_bzlmod"; not_asked "enable_workspace" ;;
      8.*) asked "bazel build .*--noenable_bzlmod .*--enable_workspace" ;;
      *) not_asked "bzlmod|workspace" ;;
    esac
  done
  run 0 test --quick
  asked "bazel test .*--noenable_bzlmod .*--enable_workspace"
}

test_a_bazel_that_cannot_build_it_is_refused() {
  local version
  for version in 3.7.2 9.0.0 10.1.0; do
    echo "bazel $version" > "$stub/bazel-version"
    run 1 build
    says "psring builds with Bazel 4 to 8, and $stub/bin/bazel is version ${version%%.*}"
    not_asked "bazel build"
  done
}

test_the_first_build_says_how_long_it_may_take() {
  run 0 doctor
  says "builds for the first time: about"
  touch "$repo/common/new.cc"
  run 0 doctor
  says "builds what has changed"
}

test_a_build_shows_progress_alone() {
  run 0 doctor
  asked "bazel build .*--ui_event_filters=-info,-debug .*--show_progress_rate_limit=60 .*--show_result=0"
}

test_help_says_how_to_let_warnings_through() {
  run 0 build --help
  says "./psring build --copt=-Wno-error"
}

test_help_needs_no_build() {
  run 0 --help
  says "compare"
  run 0 build --help
  says "Example"
  run 0 test --help
  says "Example"
  not_asked "."
}

for current in $(compgen -A function test_); do
  set_up_world
  $current
done
[ $failures = 0 ] || { echo "$failures failed"; exit 1; }
