#!/bin/sh
# Installs the run side into a folder of its own and builds hosts against it: with CMake, then with
# pkg-config, then the examples as docs/embedding.md says.
# usage: install_test.sh BUILD_FOLDER LIBDIR IMAGE ASCEND_IMAGE PIPELINE_IMAGE.c
set -eu
build=$1 libdir=$2 image=$3 ascend_image=$4
case $5 in /*) pipeline=$5 ;; *) pipeline=$PWD/$5 ;; esac
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
"$work/cmake/consumer_npu" "$ascend_image"
"$work/cmake/consumer_threads" "$image"

echo "== pkg-config"
if grep -q pcfiledir "$prefix/$libdir/pkgconfig/davit.pc"; then
  # The files name folders relative to themselves, so that the tree may be moved.
  mv "$prefix" "$work/moved"
  prefix=$work/moved
else # pkgconfig.relocatable is off.
  export PKG_CONFIG_SYSROOT_DIR="$work/root"
fi
export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig"
if pkg-config --print-requires --print-requires-private davit | grep -q flatbuffers; then
  echo "davit.pc requires flatbuffers, which hosts have no use for" >&2
  exit 1
fi
# compile_host NAME PACKAGE FLAGS...
compile_host() {
  name=$1 package=$2
  shift 2
  # shellcheck disable=SC2046  # Flags are words.
  cc -std=c11 -Wall -Wextra -Werror -o "$work/$name" "$here/$name.c" "$@" \
    $(pkg-config --cflags --libs "$package")
}
compile_host consumer davit
"$work/consumer" "$image"
compile_host consumer_npu davit-npu
"$work/consumer_npu" "$ascend_image"
compile_host consumer_threads davit-threads
"$work/consumer_threads" "$image"

echo "== the examples"
examples=$(cd "$here/../../examples" && pwd)
# shellcheck disable=SC2046
(cd "$examples/embed_c" && cc -std=c11 monitor.c kernels.c "$pipeline" \
  $(pkg-config --cflags --libs davit) -o "$work/monitor")
"$examples/embed_c/expect_output.sh" "$work/monitor"
if pkg-config --exists libpng; then
  # shellcheck disable=SC2046
  (cd "$examples/ocr" && c++ -std=c++20 read_line.cpp recognise.cpp picture.cpp \
    $(pkg-config --cflags --libs davit-npu libpng) -o "$work/read_line")
fi
# shellcheck disable=SC2046
cc -std=c11 -O2 -shared -fPIC -Wall -Wextra -Werror $(pkg-config --cflags davit) \
  "$examples/plugin/acme.c" -o "$work/acme.so" -lm
"$work/consumer" "$image" "$work/acme.so"
