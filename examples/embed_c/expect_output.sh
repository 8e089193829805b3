#!/bin/sh
# Runs the example and compares what it prints.
set -eu
expected='block 0: last sample +0.000, smoothed +0.000, alarms 0
block 1: last sample +0.153, smoothed -0.018, alarms 0
block 2: last sample +0.505, smoothed +0.212, alarms 4
block 3: last sample +0.895, smoothed +0.620, alarms 5'
actual=$("$1")
[ "$actual" = "$expected" ] || { printf 'expected:\n%s\ngot:\n%s\n' "$expected" "$actual"; exit 1; }
