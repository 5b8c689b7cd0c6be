#!/usr/bin/env bash
# Tests of tools/check.sh in a small repository of its own: each check passes on
# it and fails when broken. Each test_* function below is one case.
set -u
: "${TEST_TMPDIR:?is not set: bazel test //tests/tools/... sets it}"

source_root=$PWD
failures=0

set_up_world() {
  world=$(mktemp -d "$TEST_TMPDIR/world-XXXXXX")
  repo=$world/repo
  mkdir -p "$repo/common" "$repo/docs" "$repo/bazel-bin/cli" "$world/bin"
  cp -rL "$source_root/tools" "$repo/"
  cat > "$repo/common/BUILD" << 'END'
cc_library(name = "a", hdrs = ["a.h"])
cc_library(name = "b", hdrs = ["b.h"], deps = [":a"])
END
  echo '// A.' > "$repo/common/a.h"
  echo '#include "common/a.h"' > "$repo/common/b.h"
  printf '%s\n' '# Read me' 'See [flags](docs/flags.md#psring-run) and `common/{a,b}.h`.' \
    > "$repo/README.md"
  write_program "$repo/bazel-bin/cli/psring" 'case "$*" in
      --help) printf "Usage: psring COMMAND\n\n  run  runs\n" ;;
      *) cat << END
Runs.
Usage: psring run [OPTIONS] FILE

Positionals:
  FILE TEXT REQUIRED          Read

Options:
  -h,--help                   Help
  --n INT:INT in [1 - 9]=3    How often
  --to-column-thirty TEXT=a=b Short
  --much INT:INT in [1 - 1099511627776]=5 Excludes: --n
                              Long
  --mode TEXT:{ps,ring} ...   One|two

Example:
  psring run
END
      ;;
    esac'
  formatter 14
  (cd "$repo" && python3 tools/make_flag_reference.py > docs/flags.md)
}

write_program() {
  printf '#!/bin/sh\n%s\n' "$2" > "$1"
  chmod +x "$1"
}

# A clang-format of version $1 that wants no tabs.
formatter() {
  write_program "$world/bin/clang-format-14" 'case "$*" in
      --version) echo "clang-format version '"$1"'.0.6" ;;
      *) shift 2; ! grep -P "\t" "$@" ;;
    esac'
  ln -sf clang-format-14 "$world/bin/clang-format"
  export PATH=$world/bin:/usr/bin:/bin
}

fail() {
  echo "FAILED $current: $*"
  sed 's/^/  output: /' "$world/out"
  failures=$((failures + 1))
}

# run CODE: tools/check.sh must end with CODE.
run() {
  local code=0
  "$repo/tools/check.sh" > "$world/out" 2>&1 || code=$?
  [ $code = "$1" ] || fail "exit code $code, not $1"
}

says() { grep -qE -- "$1" "$world/out" || fail "does not say: $1"; }

# fails NAME DETAIL: this check alone.
fails() {
  run 1
  says "^FAILED   $1; remedy: "
  says "^  .*$2"
  [ "$(grep -c ^ok "$world/out")" = 6 ] || fail "others failed too"
}

test_every_check_passes() {
  run 0
  [ "$(grep -c ^ok "$world/out")" = 7 ] || fail "not seven"
  says "^ok +clang-format: 2 files"
}

# cd prints where it has found a folder by CDPATH.
test_a_cdpath_leads_nowhere_else() {
  (cd "$repo" && CDPATH=. tools/check.sh) > "$world/out" 2>&1 || fail "exit code $?"
  [ "$(grep -c ^ok "$world/out")" = 7 ] || fail "not seven"
}

test_unformatted_source() {
  printf '\tint x;\n' >> "$repo/common/a.h"
  fails clang-format common/a.h
}

test_another_clang_format_checks_nothing() {
  formatter 99
  run 0
  says "^skipped  clang-format"
}

test_include_without_dependency() {
  echo '#include "common/b.h"' > "$repo/common/a.h"
  fails layers 'common/a.h:1 includes common/b.h'
}

test_folder_of_both_topologies() {
  local topology
  mkdir -p "$repo"/{ps,ring,worker}
  for topology in ps ring; do
    echo 'cc_library(name = "it", hdrs = ["it.h"], visibility = ["//visibility:public"])' \
      > "$repo/$topology/BUILD"
    echo '// It.' > "$repo/$topology/it.h"
  done
  echo 'cc_library(name = "w", hdrs = ["w.h"], deps = ["//ps:it", "//ring:it"])' > "$repo/worker/BUILD"
  printf '#include "%s/it.h"\n' ps ring > "$repo/worker/w.h"
  fails layers 'worker/ includes both ps/ and ring/: only client/ may'
}

test_link_to_no_file() {
  echo '[x](docs/none.md)' >> "$repo/README.md"
  fails links 'README.md:3: docs/none.md'
}

test_link_to_no_heading() {
  echo '[x](flags.md#none)' >> "$repo/docs/more.md"
  fails links 'docs/more.md:1: flags.md#none'
}

test_path_of_nothing() {
  echo 'See `common/{a,c}.h`, not `std/c.h`.' >> "$repo/README.md"
  fails links 'README.md:3: there is no common/c.h'
}

test_time_by_another_door() {
  echo 'auto now = absl::Now();' >> "$repo/common/a.h"
  fails clock 'common/a.h:2:auto now'
}

test_python_that_is_too_new() {
  mkdir "$repo/python"
  printf 'match x:\n    case 1: pass\n' > "$repo/python/a.py"
  fails python 'SyntaxError'
}

# A mypy of version $1 that wants no Python file with "nothing" in it.
type_checker() {
  mkdir -p "$repo/.venv/bin" "$repo/python"
  write_program "$repo/.venv/bin/python3" 'case "$*" in
      "-m mypy --version") echo "mypy '"$1"'.1 (compiled: yes)" ;;
      "-m mypy --config-file=tools/mypy.ini"*) ! grep -rn nothing python ;;
    esac'
}

test_types_that_do_not_agree() {
  type_checker 2.4
  echo 'from a import nothing' > "$repo/python/b.py"
  run 1
  says "^FAILED   types; remedy: "
  says "^  python/b.py:1"
}

test_another_mypy_checks_nothing() {
  type_checker 99.0
  run 0
  says "^skipped  types"
}

test_flags_as_people_read_them() {
  local row
  for row in '| `FILE` | text | required | Read |' '| `-h` `--help` |  |  | Help |' \
    '| `--n` | 1 to 9 | `3` | How often |' '| `--to-column-thirty` | text | `a=b` | Short |' \
    '| `--much` | 1 or more | `5` | Long. Not with `--n` |' \
    '| `--mode` | `ps`, `ring` |  | One\|two |'; do
    grep -qxF -- "$row" "$repo/docs/flags.md" || fail "no row: $row"
  done
}

test_stale_flag_reference() {
  sed -i 's/How often/How many/' "$repo/bazel-bin/cli/psring"
  fails flags 'How many'
}

test_flag_reference_without_programs() {
  rm "$repo/bazel-bin/cli/psring"
  fails flags './psring build'
}

test_long_readme() {
  seq 200 >> "$repo/README.md"
  fails README '202 lines'
}

for current in $(compgen -A function test_); do
  set_up_world
  $current
done
[ $failures = 0 ] || { echo "$failures failed"; exit 1; }
