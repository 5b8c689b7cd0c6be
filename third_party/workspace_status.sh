#!/bin/sh
# What a build stamps into its binaries: the commit, marked when files differ.
commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || commit=unknown
[ "$commit" = unknown ] || git diff --quiet HEAD 2>/dev/null || commit=$commit-modified
echo "STABLE_GIT_COMMIT $commit"
