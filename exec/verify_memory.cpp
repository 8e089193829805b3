// Before stage 5 of the verifier: all values that lie in the arena or an output port, by address.
#include <algorithm>
#include <bit>

#include "base/checked.hpp"
#include "exec/verify_internal.hpp"

namespace davit::exec::verify {
namespace {

using Ids = std::pmr::vector<uint32_t>;
using Keys = std::pmr::vector<uint64_t>;

constexpr uint32_t kDigitBits = 11;
constexpr uint32_t kDigits = 1U << kDigitBits;

// One pass of the sort: by the digit at `shift`.
void sort_digit(const Ids& ids, const Keys& keys, uint32_t shift, Ids& ids_out, Keys& keys_out) {
  std::vector<uint32_t> next(kDigits + 1, 0);
  for (const uint64_t key : keys) ++next[((key >> shift) & (kDigits - 1)) + 1];
  for (uint32_t d = 0; d < kDigits; ++d) next[d + 1] += next[d];
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t to = next[(keys[i] >> shift) & (kDigits - 1)]++;
    ids_out[to] = ids[i];
    keys_out[to] = keys[i];
  }
}

// Sorts ids by key, least significant digit first: linear, and stable, so that equal addresses stay
// in id order. Bits below `low_bit` are equal in all keys.
void sort_by_key(Ids& ids, Keys& keys, uint32_t low_bit) {
  if (std::is_sorted(keys.begin(), keys.end())) return;
  const uint64_t max = *std::max_element(keys.begin(), keys.end());
  Ids ids_out(ids.size(), ids.get_allocator());
  Keys keys_out(keys.size(), keys.get_allocator());
  for (uint32_t shift = low_bit; shift < 64 && (max >> shift) != 0; shift += kDigitBits) {
    sort_digit(ids, keys, shift, ids_out, keys_out);
    ids.swap(ids_out);
    keys.swap(keys_out);
  }
}

// Gives each output port a range of its own behind the arena, for the largest of its values.
Status place_outputs(const ImageView& view, std::vector<uint64_t>& base) {
  const uint64_t alignment = view.arena_alignment;
  std::vector<uint64_t> bytes(view.outputs.size(), 0);
  for (uint32_t v = 0; v < view.values.count; ++v) {
    if (view.values.kind[v] != ValueKind::kOutput) continue;
    uint64_t& most = bytes[view.values.offset[v]];
    most = std::max(most, view.tensor_of(v)->bytes);
  }
  auto end = checked_align(view.arena_bytes, alignment);
  for (uint32_t i = 0; end && i < view.outputs.size(); ++i) {
    base.push_back(*end);
    end = checked_add(*end, bytes[i]);
    if (end) end = checked_align(*end, alignment);
  }
  if (!end) return broken("outputs: the arena and the outputs together exceed 2^64 bytes");
  return {};
}

}  // namespace

Status map_memory(const ImageView& view, FlowFacts& facts) {
  std::vector<uint64_t> output_base;
  if (Status s = place_outputs(view, output_base); !s.ok()) return s;
  const uint32_t count = view.values.count;
  const auto in_memory = [&](uint32_t v) {
    return view.values.kind[v] == ValueKind::kPlanned ||
           (view.values.kind[v] == ValueKind::kOutput && !view.is_dynamic(v));
  };
  size_t members = 0;
  for (uint32_t v = 0; v < count; ++v) members += in_memory(v) ? 1 : 0;
  facts.by_address.reserve(members);
  facts.begin.reserve(members);
  for (uint32_t v = 0; v < count; ++v) {
    if (!in_memory(v)) continue;
    const uint64_t offset = view.values.offset[v];
    facts.by_address.push_back(v);
    facts.begin.push_back(view.values.kind[v] == ValueKind::kPlanned ? offset
                                                                     : output_base[offset]);
  }
  // Every address is a multiple of the alignment, so its low bits say nothing.
  const auto low_bit = static_cast<uint32_t>(std::countr_zero(view.arena_alignment));
  sort_by_key(facts.by_address, facts.begin, low_bit);
  facts.rank.assign(count, kNone);
  facts.end.resize(members);
  for (uint32_t i = 0; i < members; ++i) {
    const uint32_t value = facts.by_address[i];
    facts.rank[value] = i;
    facts.end[i] = facts.begin[i] + view.tensor_of(value)->bytes;  // place_outputs() has added up.
  }
  return {};
}

}  // namespace davit::exec::verify
