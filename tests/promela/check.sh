#!/bin/sh
# Checks a model exhaustively. usage: check.sh MODEL sound|flawed [-DVARIANT]
# "flawed": the model checker must find an error, so that we know that it looks.
set -eu
model=$1 expected=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
spin "$@" -a "$model" >spin.log || { cat spin.log; exit 1; }
cc -O1 -w -DSAFETY -o pan pan.c
./pan -m1000000 >pan.log 2>&1 || true
cat pan.log
grep -q 'errors: ' pan.log
case $expected in
  sound) grep -q 'errors: 0' pan.log && ! grep -q 'Search not completed\|max search depth' pan.log ;;
  flawed) ! grep -q 'errors: 0' pan.log ;;
  *) exit 1 ;;
esac
