#!/usr/bin/env bash
# Runs the example $1 on few data; it must succeed and say so in its last line.
set -euo pipefail

export PSRING=$PWD/cli/psring DATA=digits:train=600,test=100 EPOCHS=1 SEEDS=1
export OUT=$TEST_TMPDIR/study
# A port that is free now; the examples take one from their user.
PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export PORT
last=$("$1" 2>&1 | tee /dev/stderr | tail -n 1)
case "$last" in
  trained | "identical weights: "* | "report: $OUT/report.html") ;;
  *) echo "the example ended with: $last"; exit 1 ;;
esac
