#include "model/activation_table.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

constexpr std::size_t kAlignment = 256;

ElementType type_of(Holds holds, const OperationTypes& types) {
  switch (holds) {
    case Holds::activations:
      return types.compute;
    case Holds::narrow:
      return types.narrow;
    case Holds::statistics:
      return types.master;
    case Holds::sums:
      return ElementType::float64;
    case Holds::choices:
      return ElementType::uint8;
    case Holds::tokens:
      return ElementType::int32;
  }
  return types.compute;
}

std::int64_t columns_of(const ActivationSpec& spec, ElementType type) {
  return type == ElementType::bfloat16 ? std::max(spec.columns, spec.padded_columns) : spec.columns;
}

}  // namespace

std::size_t ActivationTable::add(ActivationSpec spec) {
  if (spec.rows <= 0 || spec.columns <= 0) {
    throw std::invalid_argument(
        fmt::format("activation '{}' of {} x {}: extents must be positive", spec.name, spec.rows, spec.columns));
  }
  entries_.push_back({std::move(spec), entries_.size()});
  return entries_.size() - 1;
}

std::size_t ActivationTable::overlay(std::size_t on, ActivationSpec spec) {
  const std::size_t memory_of = entries_.at(on).memory_of;
  const std::size_t index = add(std::move(spec));
  entries_[index].memory_of = memory_of;
  return index;
}

std::int64_t ActivationTable::elements_per_sample() const noexcept {
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const bool is_activation = entry.holds == Holds::activations || entry.holds == Holds::narrow;
    if (entry.memory_of == i && is_activation && !entry.per_batch) elements += entry.rows * entry.columns;
  }
  return elements;
}

ActivationLayout::ActivationLayout(const ActivationTable& table, std::int64_t max_batch, const OperationTypes& types) {
  const auto& entries = table.all();
  std::vector<MemoryBlock> blocks(entries.size());  // blocks of entries without memory of their own stay empty
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ActivationTable::Entry& entry = entries[i];
    const std::int64_t rows = entry.per_batch ? entry.rows : (entry.margin + entry.rows) * max_batch;
    const ElementType type = type_of(entry.holds, types);
    MemoryBlock& block = blocks[entry.memory_of];
    block.bytes = std::max(block.bytes, static_cast<std::size_t>(rows * columns_of(entry, type)) * size_of(type));
    block.lifetime = entry.memory_of == i ? entry.lifetime : block.lifetime.with(entry.lifetime);
  }
  const MemoryPlacement placement = place_by_lifetimes(blocks, kAlignment);
  bytes_ = placement.bytes;
  for (const ActivationTable::Entry& entry : entries) {
    const ElementType type = type_of(entry.holds, types);
    allocations_.push_back(
        {placement.offsets[entry.memory_of], type, entry.rows, columns_of(entry, type), entry.margin, entry.per_batch});
  }
}

Tensor ActivationLayout::at(std::size_t index, void* base, std::int64_t batch, std::int64_t first) const {
  const Allocation& allocation = allocations_.at(index);
  const std::int64_t skipped =
      allocation.per_batch ? 0 : (allocation.margin * batch + first * allocation.rows) * allocation.columns;
  return {
      static_cast<std::byte*>(base) + allocation.offset + static_cast<std::size_t>(skipped) * size_of(allocation.type),
      allocation.type, allocation.per_batch ? allocation.rows : allocation.rows * batch, allocation.columns};
}

Tensor ActivationLayout::with_margin(std::size_t index, void* base, std::int64_t batch) const {
  const Allocation& allocation = allocations_.at(index);
  return {static_cast<std::byte*>(base) + allocation.offset, allocation.type,
          (allocation.margin + allocation.rows) * batch, allocation.columns};
}

}  // namespace lockstep::model
