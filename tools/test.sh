# Sourced by ./psring: runs the tests and counts their cases.

# The sanitizers' share; libtorch is not built for them.
SANITIZED="//tests/common/... //tests/ps/... //tests/ring/... //tests/collectives/... //tests/fuzz/..."

test_usage() {
  cat << END
Usage: ./psring test [--quick] [--frameworks] [BAZEL FLAGS]
       ./psring test --fuzz[=SECONDS] [TARGET...]
       ./psring test --engines
       ./psring test --wheel
       ./psring test --torch=DIR|VERSION

Runs all tests; then those of common, ps, ring, collectives and fuzz with the address
and undefined-behaviour sanitizers and, where they have threads, with the thread
sanitizer, both of which --quick leaves out (built with clang 14, in less time than with
gcc, which takes its place where it cannot be installed); the tests of Python and of engines
run beside all of these. Then come the checks of tools/check.sh (form, layers, types,
documents). The last line counts all of them: N passed, N failed.

--frameworks installs TensorFlow, JAX, Keras, TensorBoard, MLflow, Lightning, Accelerate and Transformers
into the repository's .venv first; without them the tests that need them say that they were skipped.

--engines installs Slurm, Open MPI and Java from Debian and Spark and Ray into
~/.cache/psring/engines, and runs the tests of tests/engines/ alone, three minutes: jobs under the
real engines. Without it these run where an engine is installed already.

--wheel packs the Python package as ./psring wheel does and tests it alone, three minutes: installs
it into bare environments of every Python from 3.9 that is on the PATH or among pyenv's, and says
which it did not find. Nothing is downloaded for it; the other ways leave it out.

With CI set in the environment, jobs and what calls libtorch most are tested with libtorch 2.11.0 as well.

--torch builds with another libtorch, that of DIR or of a VERSION such as 2.11.0, which pip
installs into .psring/ (CUDA's libraries come along, 3 GB), and runs the tests that use libtorch.

--fuzz searches for inputs that break what reads bytes from outside (tests/fuzz/),
30 s a target or so many SECONDS, with clang's libFuzzer, which it installs. What it
finds lies in .psring/fuzz/TARGET/ and belongs, once mended, into tests/fuzz/corpus/TARGET/.
The last line counts targets. Without --fuzz, tests run each target on its corpus.

Examples: ./psring test --quick --test_filter='Layout.*'
          ./psring test --fuzz=3600 frame membership
END
}

# Tests read checkpoints with the first ones, and are skipped where no python has
# them; the Python package is tested with the last two.
PYTHON_PACKAGES="safetensors numpy pytest pytest-xdist"

has_python_packages() {
  in_root "$1" -c 'import numpy, safetensors, pytest' > /dev/null 2>&1
}

# tools/check.sh checks types with this version alone, which needs Python 3.10.
TYPE_CHECKER=2.4

has_type_checker() {
  in_root "$1" -c "from mypy.version import __version__ as v; assert v.startswith('$TYPE_CHECKER.')" > /dev/null 2>&1
}

# put_into VENV PACKAGES...: fails where they cannot be had.
put_into() {
  local python=$1/bin/python3
  say "installs ${*:2} into $1 (log: $state/setup.log)"
  { [ -x "$python" ] || logged python3 -m venv "$1"; } && logged "$python" -m pip install "${@:2}"
}

# install_in_venv PACKAGES...: fails where they cannot be had.
install_in_venv() {
  [ "$may_install" = yes ] && in_root python3 -c 'import ensurepip, venv' 2> /dev/null || return
  put_into "$root/.venv" "$@"
}

set_up_python_packages() {
  local python=$root/.venv/bin/python3
  has_python_packages "$python" || has_python_packages python3 || install_in_venv $PYTHON_PACKAGES ||
    say "no python has $PYTHON_PACKAGES: tests that read checkpoints are skipped"
  has_type_checker "$python" || has_type_checker python3 || install_in_venv "mypy==$TYPE_CHECKER.*" ||
    say "no python has mypy $TYPE_CHECKER: the check of types is skipped"
}

# tools/check.sh skips the form of the sources where there is none.
set_up_clang_format() {
  if command -v clang-format > /dev/null || command -v clang-format-14 > /dev/null; then return; fi
  [ "$may_install" = yes ] && (install_packages clang-format) ||
    say "no clang-format: the form of the sources is not checked"
}

# record FILE CODE: what a run has written for tools/count_tests.py, and its exit code.
record() {
  echo "$1=$2" >> "$state/records.txt"
}

count_records() {
  local records
  mapfile -t records < "$state/records.txt"
  python3 "$root/tools/count_tests.py" "${records[@]}"
}

# What run_pytest tests, with the programs which its jobs start; 0: it is there.
build_for_pytest() {
  pytest_build=0
  run_bazel build --show_result=0 $PROGRAMS || pytest_build=$?
}

# run_pytest NAME PYTHON PYTEST-ARGS...: after build_for_pytest; recorded in .psring/NAME.xml.
run_pytest() {
  local name=$1 python=$2 code=$pytest_build
  shift 2
  say "tests: $name"
  rm -f "$state/$name.xml"
  [ $code != 0 ] ||
    (cd "$root" && PSRING_LIBRARY=$root/bazel-bin/python/capi/libpsring.so "$python" -m pytest -q --junitxml="$state/$name.xml" "$@") || code=$?
  record "$state/$name.xml" $code
}

# The Python package: a file of tests on each core, as its jobs wait more than they compute.
run_python_tests() {
  local python=$root/.venv/bin/python3 beside=()
  "$python" -c 'import pytest, torch' > /dev/null 2>&1 || python=python3
  if ! "$python" -c 'import pytest, torch' > /dev/null 2>&1; then
    say "no python has torch and pytest: the Python package is not tested"
    return
  fi
  if "$python" -c 'import xdist' 2> /dev/null; then beside=(-n "$(nproc)" --dist loadfile); fi
  run_pytest python "$python" ${beside[@]+"${beside[@]}"} tests/python
}

# install_into VENV PACKAGES...
install_into() {
  put_into "$@" || die "pip could not install ${*:2}"
}

FRAMEWORKS="tensorflow-cpu jax keras tensorboard mlflow-skinny lightning accelerate transformers"

ENGINES_VENV=${XDG_CACHE_HOME:-$HOME/.cache}/psring/engines
ENGINE_PACKAGES="pyspark>=4,<5 ray[train]==2.60.* numpy pytest kubernetes-validate"

install_engines() {
  (install_packages slurm-wlm munge iproute2 default-jre-headless openmpi-bin)
  install_into "$ENGINES_VENV" $ENGINE_PACKAGES
}

# Jobs under real engines: those that are installed. What is not is named by pytest, with
# what to type.
run_engine_tests() {
  local python
  for python in "$ENGINES_VENV/bin/python3" "$root/.venv/bin/python3" python3 none; do
    if "$python" -c 'import numpy, pytest' > /dev/null 2>&1; then break; fi
  done
  if [ "$python" = none ]; then
    say "no python has numpy and pytest: jobs under engines are not tested"
    return
  fi
  run_pytest engines "$python" -rs tests/engines
}

# The package that users install, in environments of its own.
run_wheel_tests() {
  local python=$root/.venv/bin/python3 wheel
  "$python" -c 'import pytest' > /dev/null 2>&1 || python=python3
  "$python" -c 'import pytest' > /dev/null 2>&1 || die "no python has pytest, which tests the wheel"
  set_up_wheel_tools
  build_if_stale
  wheel=$(make_wheel "$state/wheel")
  PSRING_WHEEL=$wheel run_pytest wheel "$python" -rs tests/wheel
}

# What needs no test program, recorded in .psring/checks.txt.
run_checks() {
  local code=0
  say "tests: checks"
  "$root/tools/check.sh" | tee "$state/checks.txt" || code=$?
  record "$state/checks.txt" $code
}

CLANG_PACKAGES="clang-14 libclang-rt-14-dev"

# With its sanitizers and libFuzzer.
has_clang() {
  echo 'int x;' | clang-14 -x c -fsanitize=fuzzer-no-link,address -c -o /dev/null - 2> /dev/null &&
    [ -e "$(clang-14 -print-resource-dir)/lib/linux/libclang_rt.fuzzer-$(uname -m).a" ]
}

# Another compiler, so a Bazel of its own, which goes when it is done.
clang_bazel=("--output_base=$state/clang-base" --max_idle_secs=30)

# The sanitizers run with gcc, too.
set_up_sanitizers() {
  has_clang || { [ "$may_install" = yes ] && (install_packages $CLANG_PACKAGES); } ||
    say "no clang-14: the sanitizers' builds take longer, with gcc"
}

set_up_fuzzing() {
  if has_clang; then return; fi
  [ "$may_install" = yes ] ||
    die "missing, and --no-setup installs nothing: apt-get install -y $CLANG_PACKAGES"
  install_packages $CLANG_PACKAGES
}

# fuzz_flags TARGET: what libFuzzer is told about its inputs, a flag a line. Only where long ones
# find more may they be long: each takes more time.
fuzz_flags() {
  case $1 in
    membership|trace) echo -max_len=131072 ;;
    *) echo -max_len=16384 ;;
  esac
  case $1 in
    trace|report|metrics|options|safetensors) echo "-dict=$root/tests/fuzz/json.dict" ;;
  esac
}

# fuzz_one TARGET SECONDS: a line as tools/check.sh prints them. What is new in the
# corpus of this search stays in .psring/fuzz/TARGET/corpus for the next one.
fuzz_one() {
  local found=$state/fuzz/$1 code=0 flags kept=("$root/tests/fuzz/corpus/$1")
  [ -d "${kept[0]}" ] || kept=()  # a new target
  mkdir -p "$found/corpus"
  mapfile -t flags < <(fuzz_flags "$1")
  nice -n 15 "$state/fuzz-bin/tests/fuzz/$1_fuzzer" -max_total_time="$2" -timeout=20 \
    -malloc_limit_mb=64 -rss_limit_mb=2048 "${flags[@]}" -artifact_prefix="$found/" \
    "$found/corpus" ${kept[@]+"${kept[@]}"} > "$found/log" 2>&1 || code=$?
  if [ $code = 0 ]; then
    echo "ok       $1: $(sed -n 's/^Done \([0-9]*\) runs.*/\1 inputs/p' "$found/log")"
  else
    echo "FAILED   $1; remedy: mend it, and keep the input in tests/fuzz/corpus/$1/"
    grep -E '^not true|SUMMARY|ERROR|Test unit written' "$found/log" | sed 's/^/  /'
    echo "  all of it: $found/log"
  fi
  return $code
}

# fuzz_targets SECONDS TARGETS...: as many at a time as there are cores.
fuzz_targets() {
  local seconds=$1 target code=0
  shift
  for target in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || code=1; done
    fuzz_one "$target" "$seconds" &
  done
  while [ -n "$(jobs -rp)" ]; do wait -n || code=1; done
  return $code
}

fuzz_command() {
  local seconds=$1 target code=0 targets=("${@:2}") labels=()
  local bazel_startup=("${clang_bazel[@]}")
  set_up_fuzzing
  if [ ${#targets[@]} = 0 ]; then
    targets=($(cd "$root/tests/fuzz" && ls *_fuzz.cc | sed 's/_fuzz\.cc$//'))
  fi
  for target in "${targets[@]}"; do
    [ -e "$root/tests/fuzz/${target}_fuzz.cc" ] ||
      die "--fuzz: there is no target $target; see tests/fuzz/"
    labels+=("//tests/fuzz:${target}_fuzzer")
  done
  say "builds the fuzzers"
  run_bazel build --config=fuzz --symlink_prefix="$state/fuzz-" --show_result=0 \
    "${labels[@]}" || die "the build failed; see above"
  say "fuzzes ${#targets[@]} targets, $seconds s each"
  fuzz_targets "$seconds" "${targets[@]}" | tee "$state/fuzz.txt" || code=$?
  python3 "$root/tools/count_tests.py" "$state/fuzz.txt=$code"
}

# run_tests NAME BAZEL-ARGS...: one run, recorded in .psring/test-NAME.json. Tests wait more than
# they compute: each core compiles beside those that run.
run_tests() {
  local name=$1 code=0 cores
  shift
  cores=$(nproc)
  say "tests: $name"
  rm -f "$state/test-$name.json"
  run_bazel test --keep_going --build_event_json_file="$state/test-$name.json" \
    --jobs=$((3 * cores)) --local_test_jobs=$((cores + 1)) "$@" || code=$?
  record "$state/test-$name.json" $code
}

# run_sanitized NAME BAZEL-ARGS...
run_sanitized() {
  local name=$1 tags=-no-sanitizer clang=() bazel_startup=()
  if has_clang; then
    clang=(--config=clang)
    bazel_startup=("${clang_bazel[@]}")
  fi
  # What has one thread has no races to find.
  if [ "$name" = tsan ]; then tags=$tags,-one-thread; fi
  # Their outputs must not hide the programs in bazel-bin.
  run_tests "$name" --config="$name" ${clang[@]+"${clang[@]}"} --symlink_prefix="$state/$name-" --build_tests_only \
    --define=cuda=no --test_tag_filters="$tags" "${@:2}" $SANITIZED
}

# What uses libtorch, with the one that was chosen.
run_torch_tests() {
  # Another libtorch, so a Bazel of its own, which goes when it is done.
  local bazel_startup=("--output_base=$state/torch-base" --max_idle_secs=30) tests
  tests=$(run_bazel query 'tests(rdeps(//tests/..., @torch//:torch))') ||
    die "Bazel cannot say which tests use libtorch; see above"
  say "libtorch: $torch"
  run_tests torch --symlink_prefix="$state/torch-" --build_tests_only "$@" $tests
}

OLDEST_TORCH=2.11.0
OLDEST_TORCH_GB=12  # with CUDA's libraries, while pip unpacks them

# In continuous integration: models, devices and a whole job with the oldest libtorch that psring
# supports. Not where that cannot be installed.
start_oldest_torch() {
  oldest_torch=
  [ -n "${CI:-}" ] || return 0
  if [ "$(df --output=avail -BG "$root" | tr -dc 0-9)" -lt $OLDEST_TORCH_GB ]; then
    say "less than $OLDEST_TORCH_GB GB are free: not tested with libtorch $OLDEST_TORCH"
    return
  fi
  torch_of_version $OLDEST_TORCH > "$state/oldest-torch.txt" &
  oldest_torch=$!
}

finish_oldest_torch() {
  [ -n "$oldest_torch" ] || return 0
  if ! wait $oldest_torch; then
    say "not tested with libtorch $OLDEST_TORCH, which pip could not install"
    return
  fi
  local torch
  torch=$(cat "$state/oldest-torch.txt")
  run_tests oldest-torch --build_tests_only "$@" //tests/worker/torch/... //tests/worker/models/... \
    //tests/integration:checkpoint_test
}

# Starts the tests of Python, then of engines, beside others, in a process group of its own, which
# SIGINT reaches. pytest_group: its leader.
start_pytest() {
  # The longest to run: what compiles gives way.
  bazel_prefix=(nice -n 5)
  build_for_pytest
  say "tests: python and engines, beside the others (log: $state/pytest.log)"
  set -m
  { run_python_tests; run_engine_tests; } < /dev/null > "$state/pytest.log" 2>&1 &
  pytest_group=$!
  set +m
  trap 'kill -INT -- -$pytest_group 2> /dev/null; exit 130' INT TERM
}

finish_pytest() {
  wait $pytest_group || true
  trap - INT TERM
  cat "$state/pytest.log"
}

test_command() {
  case "${1:-}" in -h | --help) test_usage; return ;; esac
  local quick=no frameworks=no engines=no wheel=no fuzz= other_torch= sanitizer
  while true; do
    case "${1:-}" in
      --quick) quick=yes; shift ;;
      --frameworks) frameworks=yes; shift ;;
      --fuzz) fuzz=30; shift ;;
      --fuzz=*)
        fuzz=${1#--fuzz=}
        case $fuzz in
          '' | *[!0-9]*) say "--fuzz=$fuzz is no number of seconds"; exit 2 ;;
        esac
        shift ;;
      --engines) engines=yes; shift ;;
      --wheel) wheel=yes; shift ;;
      --torch=?*) other_torch=${1#--torch=}; shift ;;
      --torch | --torch=) say "--torch wants a value: --torch=DIR|VERSION"; exit 2 ;;
      *) break ;;
    esac
  done
  if [ -n "$other_torch" ]; then choose_other_torch "$other_torch"; else choose_torch; fi
  set_up
  mkdir -p "$state"
  rm -f "$state/records.txt"
  if [ -n "$fuzz" ]; then fuzz_command "$fuzz" "$@"; return; fi
  if [ -n "$other_torch" ]; then
    run_torch_tests "$@"
    count_records
    return
  fi
  if [ $engines = yes ]; then
    install_engines
    build_for_pytest
    run_engine_tests
    count_records
    return
  fi
  set_up_python_packages
  if [ $wheel = yes ]; then
    . "$root/tools/wheel.sh"
    build_for_pytest
    run_wheel_tests
    count_records
    return
  fi
  if [ $frameworks = yes ]; then install_into "$root/.venv" $FRAMEWORKS; fi
  set_up_clang_format
  if [ $quick = no ]; then
    set_up_sanitizers
    start_oldest_torch
  fi
  start_pytest
  # Beside the tests of Python, one fewer: all of them have deadlines.
  run_tests default --local_test_jobs="$(nproc)" --build_tests_only "$@" //...
  if [ $quick = no ]; then
    for sanitizer in asan tsan; do run_sanitized $sanitizer "$@"; done
  fi
  finish_pytest
  # The last to build: programs in bazel-bin are those of another libtorch then.
  if [ $quick = no ]; then finish_oldest_torch "$@"; fi
  run_checks
  count_records
}
