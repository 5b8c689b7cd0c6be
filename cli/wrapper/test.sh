# Sourced by ./psring: runs the tests and counts their cases.

# The sanitizers' share; libtorch is not built for them.
SANITIZED="//tests/common/... //tests/ps/... //tests/ring/..."

test_usage() {
  cat << END
Usage: ./psring test [--quick] [BAZEL FLAGS]

Runs all tests; then those of common, ps and ring once with the address and
undefined-behaviour sanitizers and once with the thread sanitizer, which --quick
leaves out. The last line counts: N passed, N failed.

Example: ./psring test --quick --test_filter='Layout.*'
END
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
  local quick=no sanitizer records=()
  if [ "${1:-}" = --quick ]; then
    quick=yes
    shift
  fi
  choose_torch
  set_up
  mkdir -p "$state"
  run_tests default "$@" //...
  if [ $quick = no ]; then
    for sanitizer in asan tsan; do
      # Their outputs must not hide the programs in bazel-bin.
      run_tests $sanitizer --config=$sanitizer --symlink_prefix="$state/$sanitizer-" \
        --build_tests_only --test_tag_filters=-no-sanitizer "$@" $SANITIZED
    done
  fi
  python3 "$root/cli/wrapper/count_tests.py" "${records[@]}"
}
