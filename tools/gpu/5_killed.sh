#!/usr/bin/env bash
# One of two workers is killed, or stopped: the others name it within ten seconds,
# and no process is left.

name=5_killed shares_gpu=yes on_cpu="all of it, over the host's ring"
. "$(dirname "$(readlink -f "$0")")/common.sh"

# The processes that a launch has started.
children_of() { cat /proc/"$1"/task/*/children 2> /dev/null; }

# Its worker of that rank.
pid_of() {
  local pid
  for pid in $(children_of "$1"); do
    tr '\0' ' ' < "/proc/$pid/cmdline" | grep -q -- "--rank=$2 " && echo "$pid"
  done
}

# on_gpu PIDS: whether the GPU lists one of them.
on_gpu() {
  [ $device = cuda ] || return 1
  nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -qxF "$(xargs -n 1 <<< "$1")"
}

# lose SIGNAL: rank 1 gets it in the middle of a training.
lose() {
  local log=$out/$1.log begin pids victim
  "${psring[@]}" launch --mode=ring --workers=2 --metrics-dir="$out/$1" -- "${mlp[@]}" \
    --steps=1000000 > "$log" 2>&1 &
  local launch=$!
  for _ in $(seq 600); do
    [ "$(grep -c '"event":"step"' "$out/$1/worker-0.jsonl" 2> /dev/null || true)" -ge 2 ] 2> /dev/null && break
    sleep 0.1
  done
  pids=$(children_of $launch || true)
  victim=$(pid_of $launch 1 || true)
  if [ -z "$victim" ]; then
    bad "$1: the training has not begun: $(tail -n 1 "$log")"
    kill $launch 2> /dev/null || true
    wait $launch || true
    return
  fi
  local listed=no
  ! on_gpu "$pids" || listed=yes
  begin=$(date +%s)
  kill "-$1" "$victim"
  for _ in $(seq 250); do
    grep -q "lost worker 1\|worker 1 (pid .*) failed" "$log" && break
    sleep 0.1
  done
  local named=$(($(date +%s) - begin)) within=10
  [ $device = cuda ] || within=20  # a host that runs other tests, too
  [ $named -le $within ] && good "$1: worker 1 is named after $named s" ||
    bad "$1: nobody names worker 1 within $within s"
  # One that is stopped is given time to end before it is killed.
  local code=0
  wait $launch || code=$?
  [ $code != 0 ] && good "$1: the job ended after $(($(date +%s) - begin)) s, with $code" ||
    bad "$1: the job ended as if nothing were wrong"
  local left=
  for pid in $pids; do [ ! -d "/proc/$pid" ] || left="$left $pid"; done
  [ -z "$left" ] && good "$1: no process is left" || bad "$1: left:$left"
  if [ $device = cpu ]; then
    :
  elif [ $listed = no ]; then
    echo "        $1: nvidia-smi lists no process of the job here, so whether it frees the GPU was not looked at"
  elif on_gpu "$pids"; then
    bad "$1: the GPU still lists one of them"
  else
    good "$1: the GPU lists none of them any more"
  fi
}

lose KILL
lose STOP
finish
