# Sourced by ./psring: runs the tests and counts their cases.

# The sanitizers' share; libtorch is not built for them.
SANITIZED="//tests/common/... //tests/ps/... //tests/ring/... //tests/collectives/..."

test_usage() {
  cat << END
Usage: ./psring test [--quick] [--frameworks] [BAZEL FLAGS]

Runs all tests; then those of common, ps, ring and collectives with the address
and undefined-behaviour sanitizers and, where they have threads, with the thread
sanitizer, both of which --quick leaves out; then the checks of tools/check.sh
(form, layers, documents). The last line counts all of them: N passed, N failed.

--frameworks installs TensorFlow, JAX and Keras into the repository's .venv first;
without them the tests that need them say that they were skipped.

Example: ./psring test --quick --test_filter='Layout.*'
END
}

# Tests read checkpoints with the first ones, and are skipped where no python has
# them; the Python package is tested with the last one.
PYTHON_PACKAGES="safetensors numpy pytest"

has_python_packages() {
  "$1" -c 'import numpy, safetensors, pytest' > /dev/null 2>&1
}

set_up_python_packages() {
  local python=$root/.venv/bin/python3
  if has_python_packages "$python" || has_python_packages python3; then return; fi
  if [ "$may_install" = yes ] && python3 -c 'import ensurepip, venv' 2> /dev/null; then
    say "installs $PYTHON_PACKAGES into $root/.venv (log: $state/setup.log)"
    if { [ -x "$python" ] || logged python3 -m venv "$root/.venv"; } &&
      logged "$python" -m pip install $PYTHON_PACKAGES; then
      return
    fi
  fi
  say "no python has $PYTHON_PACKAGES: tests that read checkpoints with them are skipped"
}

# tools/check.sh skips the form of the sources where there is none.
set_up_clang_format() {
  if command -v clang-format > /dev/null || command -v clang-format-14 > /dev/null; then return; fi
  [ "$may_install" = yes ] && (install_packages clang-format) ||
    say "no clang-format: the form of the sources is not checked"
}

# The Python package over the library that was built, recorded in
# .psring/python.xml.
run_python_tests() {
  local python=$root/.venv/bin/python3 code=0
  "$python" -c 'import pytest, torch' > /dev/null 2>&1 || python=python3
  if ! "$python" -c 'import pytest, torch' > /dev/null 2>&1; then
    say "no python has torch and pytest: the Python package is not tested"
    return
  fi
  say "tests: python"
  run_bazel build --show_result=0 //python/capi:libpsring.so //cli:psring || code=$?
  rm -f "$state/python.xml"
  [ $code != 0 ] ||
    (cd "$root" && PSRING_LIBRARY=$root/bazel-bin/python/capi/libpsring.so "$python" -m pytest -q --junitxml="$state/python.xml" tests/python) || code=$?
  records+=("$state/python.xml=$code")
}

FRAMEWORKS="tensorflow-cpu jax keras"

install_frameworks() {
  say "installs $FRAMEWORKS into $root/.venv (log: $state/setup.log)"
  { [ -x "$root/.venv/bin/python3" ] || logged python3 -m venv "$root/.venv"; } &&
    logged "$root/.venv/bin/python3" -m pip install $FRAMEWORKS ||
    die "pip could not install $FRAMEWORKS"
}

# What needs no test program, recorded in .psring/checks.txt.
run_checks() {
  local code=0
  say "tests: checks"
  "$root/tools/check.sh" | tee "$state/checks.txt" || code=$?
  records+=("$state/checks.txt=$code")
}

# run_tests NAME BAZEL-ARGS...: one run, recorded in .psring/test-NAME.json.
run_tests() {
  local name=$1 code=0
  shift
  say "tests: $name"
  rm -f "$state/test-$name.json"
  run_bazel test --keep_going --build_event_json_file="$state/test-$name.json" \
    "$@" || code=$?
  records+=("$state/test-$name.json=$code")
}

test_command() {
  case "${1:-}" in -h | --help) test_usage; return ;; esac
  local quick=no frameworks=no sanitizer tags records=()
  while true; do
    case "${1:-}" in
      --quick) quick=yes; shift ;;
      --frameworks) frameworks=yes; shift ;;
      *) break ;;
    esac
  done
  choose_torch
  set_up
  mkdir -p "$state"
  set_up_python_packages
  if [ $frameworks = yes ]; then install_frameworks; fi
  set_up_clang_format
  run_tests default --build_tests_only "$@" //...
  run_python_tests
  if [ $quick = no ]; then
    for sanitizer in asan tsan; do
      tags=-no-sanitizer
      # What has one thread has no races to find.
      if [ $sanitizer = tsan ]; then tags=$tags,-one-thread; fi
      # Their outputs must not hide the programs in bazel-bin.
      run_tests $sanitizer --config=$sanitizer --symlink_prefix="$state/$sanitizer-" \
        --build_tests_only --define=cuda=no --test_tag_filters="$tags" "$@" $SANITIZED
    done
  fi
  run_checks
  python3 "$root/tools/count_tests.py" "${records[@]}"
}
