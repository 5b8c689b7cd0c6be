#!/usr/bin/env bash
# Checks what needs no test program: form, layers, documents.
set -euo pipefail

usage() {
  cat << END
Usage: tools/check.sh

One line a check: "ok", "skipped" or "FAILED" with the remedy; what is wrong
comes below it. ./psring test runs and counts these checks too. The flag
reference is compared with the programs of the last ./psring build.
END
}

# The version that the sources are formatted with: others differ in places.
CLANG_FORMAT=14
# The version that types are checked with: others find other faults.
MYPY=2.4
README_LINES=200

root=$(dirname "$(dirname "$(readlink -f "$0")")")
failed=0

# report NAME REMEDY OUTPUT CODE
report() {
  if [ "$4" = 0 ]; then
    echo "ok       $1: $(tail -n 1 <<< "$3")"
    return
  fi
  failed=1
  echo "FAILED   $1; remedy: $2"
  sed 's/^/  /' <<< "$3"
}

# check NAME REMEDY COMMAND...
check() {
  local name=$1 remedy=$2 output code=0
  shift 2
  output=$("$@" 2>&1) || code=$?
  report "$name" "$remedy" "$output" $code
}

skipped() { echo "skipped  $1: $2"; }

sources() {
  find . -name '.?*' -prune -o -name 'bazel-*' -prune -o \
    -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.c' \) -print0
}

clang_format() {
  local program
  for program in clang-format-$CLANG_FORMAT clang-format; do
    if "$program" --version 2> /dev/null | grep -q "version $CLANG_FORMAT\."; then
      echo "$program"
      return
    fi
  done
}

is_formatted() {
  sources | xargs -0 -n 50 -P "$(nproc)" "$1" --dry-run --Werror &&
    echo "$(sources | tr -dc '\0' | wc -c) files"
}

flags_are_current() {
  local printed
  printed=$(python3 tools/make_flag_reference.py) || { echo "$printed"; return 1; }
  diff <(echo "$printed") docs/flags.md && echo "as the programs print them"
}

# Deadlines on a clock that somebody can set would end healthy jobs.
time_has_one_door() {
  local found
  found=$({ sources; find python tests examples -name '*.py' -print0 2> /dev/null; } |
    xargs -0 grep -nE 'absl::(Now\(|GetCurrentTime|Time\b)|system_clock|gettimeofday|CLOCK_REALTIME|time\.time\(' |
    grep -vE '^\./(common/clock\.h|tests/chaos/clock_jumps\.cc):' || true)
  echo "${found:-common/clock.h}"
  [ -z "$found" ]
}

type_checker() {
  local python
  for python in .venv/bin/python3 python3; do
    if "$python" -m mypy --version 2> /dev/null | grep -q "^mypy $MYPY\."; then
      echo "$python"
      return
    fi
  done
}

# Errors between our own modules; what others' libraries declare differs with their versions.
types_agree() {
  "$1" -m mypy --config-file=tools/mypy.ini --cache-dir=.psring/mypy
}

# The package promises Python 3.9.
parses_as_python_3_9() {
  python3 - << 'END'
import ast, pathlib
paths = [p for folder in ("python", "examples/python") for p in pathlib.Path(folder).rglob("*.py")]
for path in paths:
    ast.parse(path.read_text(), str(path), feature_version=(3, 9))
print(len(paths), "files")
END
}

readme_is_short() {
  local lines
  lines=$(wc -l < README.md)
  echo "$lines lines of at most $README_LINES"
  [ "$lines" -le $README_LINES ]
}

case "${1:-}" in
  '') ;;
  *) usage; exit 2 ;;
esac
cd "$root"
program=$(clang_format)
if [ -n "$program" ]; then
  check clang-format "clang-format -i FILE" is_formatted "$program"
else
  skipped clang-format "no clang-format $CLANG_FORMAT (Debian 12: apt-get install clang-format)"
fi
check layers "see BUILD and docs/architecture.md" python3 tools/check_layers.py
check links "name what exists" python3 tools/check_links.py
check clock "take Now() or WallNow() of common/clock.h; time.monotonic() in Python" time_has_one_door
check python "write what Python 3.9 reads" parses_as_python_3_9
python=$(type_checker)
if [ -n "$python" ]; then
  check types "see the lines that it names" types_agree "$python"
else
  skipped types "no mypy $MYPY: ./psring test installs it (python3 -m pip install 'mypy==$MYPY.*')"
fi
check flags "./psring build && tools/make_flag_reference.py > docs/flags.md" flags_are_current
check README "move what is not for users to docs/" readme_is_short
exit $failed
