#!/bin/sh
# Installs the run side into a folder of its own and builds consumer.c against it: with CMake, then
# with pkg-config. usage: install_test.sh BUILD_FOLDER LIBDIR IMAGE
set -eu
build=$1 libdir=$2 image=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

meson install -C "$build" --no-rebuild --tags devel --destdir "$work/root" >"$work/install.log" ||
  { cat "$work/install.log"; exit 1; }
prefix=$(dirname "$(find "$work/root" -type d -path '*/include/davit')")/..
prefix=$(cd "$prefix" && pwd)

echo "== CMake"
cmake -S "$here" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log" 2>&1 ||
  { cat "$work/cmake.log"; exit 1; }
cmake --build "$work/cmake"
"$work/cmake/consumer" "$image"

echo "== pkg-config"
export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$work/root"
# shellcheck disable=SC2046  # Flags are words.
cc -std=c11 -Wall -Wextra -Werror -o "$work/consumer" "$here/consumer.c" \
  $(pkg-config --cflags --libs davit)
"$work/consumer" "$image"

echo "== a plug-in"
# shellcheck disable=SC2046
cc -std=c11 -O2 -shared -fPIC -Wall -Wextra -Werror $(pkg-config --cflags davit) \
  "$here/../../examples/plugin/acme.c" -o "$work/acme.so" -lm
"$work/consumer" "$image" "$work/acme.so"
