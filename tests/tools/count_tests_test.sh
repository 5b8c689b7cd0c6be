#!/usr/bin/env bash
# Tests of tools/count_tests.py on small records of bazel runs.
set -u

failures=0
dir=$TEST_TMPDIR

target() { echo '{"id":{"targetConfigured":{"label":"'"$1"'"}},"configured":{"testSize":"SMALL"}}'; }

# result LABEL STATUS XML [ATTEMPT]; it took 31 s
result() {
  echo '{"id":{"testResult":{"label":"'"$1"'","run":1,"attempt":'"${4:-1}"'}},"testResult":{"status":"'"$2"'","testAttemptDurationMillis":"31000","testActionOutput":[{"name":"test.log","uri":"file://'"$dir/test.log"'"},{"name":"test.xml","uri":"file://'"$3"'"}]}}'
}

expect() {
  local want_code=$1 want=$2 code=0 got
  shift 2
  got=$(python3 tools/count_tests.py "$@") || code=$?
  if [ "$(tail -n 1 <<< "$got")" != "$want" ] || [ $code != "$want_code" ]; then
    echo "FAILED: wanted '$want' and $want_code, got '$got' and $code"
    failures=$((failures + 1))
  fi
}

# expect_told WHAT FILE=CODE: among what comes before the last line.
expect_told() {
  local got
  got=$(python3 tools/count_tests.py "$2")
  if ! grep -qxF -- "$1" <<< "$got"; then
    echo "FAILED: '$1' is not told in '$got'"
    failures=$((failures + 1))
  fi
}

seq 100 > "$dir/test.log"
cat > "$dir/good.xml" << 'END'
<testsuites><testsuite>
<testcase name="A" status="run" result="completed"/>
<testcase name="B" status="run" result="skipped"><skipped message="x"/></testcase>
<testcase name="C" status="run" result="completed"/>
</testsuite></testsuites>
END
cat > "$dir/bad.xml" << 'END'
<testsuites><testsuite>
<testcase name="A" status="run" result="completed"/>
<testcase classname="Of" name="B" status="run" result="completed"><failure message="1">one is
not two</failure><failure message="2"/></testcase>
</testsuite></testsuites>
END
cat > "$dir/shell.xml" << 'END'
<testsuites><testsuite><testcase name="t" status="run"></testcase></testsuite></testsuites>
END

completed='{"id":{"targetCompleted":{"label":"//a"}},"completed":{"success":true,"testTimeoutSeconds":"60"}}'
{ target //a; result //a PASSED "$dir/good.xml"; echo "$completed"; } > "$dir/good.json"
{ target //b; result //b FAILED "$dir/bad.xml"; } > "$dir/bad.json"
{ target //c; result //c FAILED "$dir/none.xml"; } > "$dir/crash.json"
{ target //d; result //d FAILED "$dir/good.xml"; } > "$dir/late.json"
target //e > "$dir/unbuilt.json"
{ target //f; result //f PASSED "$dir/shell.xml"; } > "$dir/shell.json"
{ target //g; result //g FAILED "$dir/bad.xml"; result //g PASSED "$dir/shell.xml" 2; } > "$dir/flaky.json"

expect 0 "2 passed, 0 failed, 1 skipped" "$dir/good.json=0"
expect 1 "1 passed, 1 failed" "$dir/bad.json=3"
expect 1 "0 passed, 1 failed" "$dir/crash.json=3"
# Every case passed, the program failed all the same, as with a leak.
expect 1 "2 passed, 1 failed, 1 skipped" "$dir/late.json=3"
expect 1 "0 passed, 1 failed" "$dir/unbuilt.json=1"
expect 0 "1 passed, 0 failed" "$dir/shell.json=0"
expect 0 "1 passed, 0 failed" "$dir/flaky.json=0"
cat "$dir/bad.json" "$dir/crash.json" "$dir/late.json" > "$dir/three.json"
expect 1 "3 passed, 3 failed, 1 skipped" "$dir/three.json=3"
# A build that broke without naming a target; a record that was never written.
expect 1 "1 passed, 1 failed" "$dir/shell.json=1"
expect 1 "0 passed, 1 failed" "$dir/missing.json=37"
expect 1 "4 passed, 1 failed, 1 skipped" "$dir/good.json=0" "$dir/shell.json=0" "$dir/bad.json=3"
# The lines of tools/check.sh, with details below those that failed.
printf '%s\n' "ok       links: 9" "skipped  form: none" "FAILED   README; remedy: x" \
  "  ok or not, this is a detail" > "$dir/checks.txt"
printf '%s\n' "ok       links: 9" > "$dir/broken.txt"
expect 1 "1 passed, 1 failed, 1 skipped" "$dir/checks.txt=1"
expect 1 "3 passed, 1 failed, 2 skipped" "$dir/good.json=0" "$dir/checks.txt=1"
# A check.sh that broke before it could say what failed.
expect 1 "1 passed, 1 failed" "$dir/broken.txt=2"
# Each failure is named, with what was said of it; a crash with the end of its log.
expect_told "psring: failed: //b: Of.B" "$dir/bad.json=3"
expect_told "  not two" "$dir/bad.json=3"
expect_told "psring: failed: //c: FAILED" "$dir/crash.json=3"
expect_told "  100" "$dir/crash.json=3"
expect_told "psring: failed: //e did not run" "$dir/unbuilt.json=1"
expect_told "psring: //a took 31 s of at most 60 s: give it a larger size" "$dir/good.json=0"
expect_told "  FAILED   README; remedy: x" "$dir/checks.txt=1"
cp "$dir/bad.xml" "$dir/pytest.xml"
expect_told "psring: failed: Of.B" "$dir/pytest.xml=1"
[ $failures = 0 ]
