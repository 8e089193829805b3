#!/usr/bin/env bash
# demo.sh BUILD MODELS: renders a sentence, compiles the recogniser for both targets, reads the
# sentence on both. Called by `./dev demo`. Prints absolute paths: its caller may stand anywhere.
set -euo pipefail
build=$(realpath "$1") models=$(realpath "$2")
cd "$(dirname "$0")/../.."
out=$build/demo
mkdir -p "$out"

sentence="Lower the boat, then launch it."
font=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
model=$models/ch_PP-OCRv4_rec_infer.onnx
davit=$build/cli/davit

step() { printf '\n== %s\n' "$*"; }

step "rendering \"$sentence\" to $out/line.png"
"$build/examples/ocr/render_text" "$out/line.png" "$font" "$sentence"

for target in cpu ascend:910B2; do
  image=$out/rec.${target%%:*}.davit
  step "compiling $(basename "$model") for $target"
  "$davit" compile "$model" -o "$image" --target "$target" --shapes=x:1x3x48x560 --quiet
  ls -l "$image" | awk '{print $NF ": " $5 " bytes"}'
  step "reading the picture with $image"
  "$build/examples/ocr/read_line" "$image" "$models/ppocr_keys_v1.txt" "$out/line.png" |
    tee "$out/${target%%:*}.txt"
done

step "tracing one run on the Ascend model"
"$davit" run "$out/rec.ascend.davit" --input x=zeros --trace "$out/trace.json" \
  --op-summary "$out/op_summary.csv" --quiet
echo "trace:      $out/trace.json (open it in Perfetto)"
echo "op summary: $out/op_summary.csv"

for target in cpu ascend; do
  if ! grep -qxF "text: $sentence" "$out/$target.txt"; then
    echo "demo FAILED: $target read something else than \"$sentence\"" >&2
    exit 1
  fi
done
echo
echo "Both targets read: $sentence"
