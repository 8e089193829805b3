// The C API of models, labels and queues.
#include "npu_model/npu_handle.hpp"

using davit::npu::enter;
using davit::npu::Npu;
using davit::npu::null_output;

extern "C" {

DvtCode dvt_npu_model_create(DvtNpu* npu, DvtNpuModel** out) {
  if (out == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.create_model(); }, out);
}

DvtCode dvt_npu_model_destroy(DvtNpu* npu, DvtNpuModel* model) {
  return enter(npu, [&](Npu& n) { return n.destroy_model(model); });
}

DvtCode dvt_npu_model_bind_stream(DvtNpu* npu, DvtNpuModel* model, DvtStream* stream, int is_head) {
  return enter(npu, [&](Npu& n) { return n.bind_stream(model, stream, is_head != 0); });
}

DvtCode dvt_npu_model_end_graph(DvtNpu* npu, DvtNpuModel* model, DvtStream* stream) {
  return enter(npu, [&](Npu& n) { return n.end_graph(model, stream); });
}

DvtCode dvt_npu_model_build_end(DvtNpu* npu, DvtNpuModel* model) {
  return enter(npu, [&](Npu& n) { return n.build_end(model); });
}

DvtCode dvt_npu_model_execute(DvtNpu* npu, DvtNpuModel* model, DvtStream* stream) {
  return enter(npu, [&](Npu& n) { return n.execute(model, stream); });
}

DvtCode dvt_npu_model_abort(DvtNpu* npu, DvtNpuModel* model) {
  return enter(npu, [&](Npu& n) { return n.abort_model(model); });
}

DvtCode dvt_npu_stream_active(DvtNpu* npu, DvtStream* stream, DvtStream* target) {
  return enter(npu, [&](Npu& n) { return n.activate(stream, target); });
}

DvtCode dvt_npu_stream_switch(DvtNpu* npu, DvtStream* stream, const void* left,
                              DvtNpuCondition condition, const void* right, DvtStream* target) {
  return enter(npu,
               [&](Npu& n) { return n.switch_stream(stream, left, condition, right, target); });
}

DvtCode dvt_npu_label_create(DvtNpu* npu, DvtNpuModel* model, DvtNpuLabel** out) {
  if (out == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.create_label(model); }, out);
}

DvtCode dvt_npu_label_set(DvtNpu* npu, DvtStream* stream, DvtNpuLabel* label) {
  return enter(npu, [&](Npu& n) { return n.set_label(stream, label); });
}

DvtCode dvt_npu_label_goto(DvtNpu* npu, DvtStream* stream, DvtNpuLabel* label) {
  return enter(npu, [&](Npu& n) { return n.go_to(stream, label); });
}

DvtCode dvt_npu_label_switch(DvtNpu* npu, DvtStream* stream, const void* index,
                             DvtNpuLabel* const* labels, uint32_t label_count) {
  return enter(npu, [&](Npu& n) { return n.switch_label(stream, index, labels, label_count); });
}

DvtCode dvt_npu_queue_create(DvtNpu* npu, uint32_t depth, DvtNpuQueue** out) {
  if (out == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.create_queue(depth); }, out);
}

DvtCode dvt_npu_queue_destroy(DvtNpu* npu, DvtNpuQueue* queue) {
  return enter(npu, [&](Npu& n) { return n.destroy_queue(queue); });
}

DvtCode dvt_npu_queue_enqueue(DvtNpu* npu, DvtNpuQueue* queue, const void* from, uint64_t bytes) {
  return enter(npu, [&](Npu& n) { return n.put(queue, from, bytes); });
}

DvtCode dvt_npu_queue_dequeue(DvtNpu* npu, DvtNpuQueue* queue, void* to, uint64_t bytes,
                              int64_t timeout_us) {
  return enter(npu, [&](Npu& n) { return n.take(queue, to, bytes, timeout_us); });
}

DvtCode dvt_npu_enqueue_async(DvtNpu* npu, DvtStream* stream, DvtNpuQueue* queue, const void* from,
                              uint64_t bytes) {
  return enter(npu, [&](Npu& n) { return n.put_async(stream, queue, from, bytes); });
}

DvtCode dvt_npu_dequeue_async(DvtNpu* npu, DvtStream* stream, DvtNpuQueue* queue, void* to,
                              uint64_t bytes) {
  return enter(npu, [&](Npu& n) { return n.take_async(stream, queue, to, bytes); });
}

DvtCode dvt_npu_queue_size(DvtNpu* npu, DvtNpuQueue* queue, uint32_t* out) {
  if (out == nullptr) return null_output();
  return enter(
      npu, [&](Npu& n) { return n.queue_size(queue); }, out);
}

}  // extern "C"
