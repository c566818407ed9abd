/// \file
/// One call of oneDNN for one direction of one convolution and one batch size. Only convolution.cpp includes this.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "model/bf16_unit.hpp"
#include "model/cpu/arena_memory.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cpu {

/// Scratch memory that grows to the largest request and is kept, because fresh pages cost more than the writes to them.
class ScratchFloats {
 public:
  ScratchFloats() = default;
  ScratchFloats(const ScratchFloats&) = delete;
  ScratchFloats& operator=(const ScratchFloats&) = delete;
  /// The content is lost if the memory grows.
  std::span<float> at_least(std::size_t count);

 private:
  ArenaMemory memory_;
  std::pmr::vector<float> floats_{&memory_};
};

/// Resources of all steps: oneDNN's engine, and a stream and a scratchpad for each of our threads.
class OnednnWorkspace {
 public:
  explicit OnednnWorkspace(std::size_t threads);
  /// Makes oneDNN use only the calling thread.
  void claim_thread() const noexcept;

  dnnl::engine engine;
  std::vector<dnnl::stream> streams;       ///< by thread
  std::vector<ScratchFloats> scratchpads;  ///< by thread
};

enum class Direction : std::size_t { forward, backward_input, backward_filters };
std::string_view name_of(Direction direction) noexcept;

/// Types of the factors of a convolution. Sums are fp32 until they are written.
enum class FactorType {
  fp32,
  rounded,  ///< fp32 numbers that bf16 can represent
  bf16,     ///< oneDNN rounds the filters itself
};
/// Returns true if oneDNN multiplies bf16 numbers with the processor's instructions. Keeps oneDNN from AMX if the unit
/// is another one, which only works before any other call of oneDNN.
bool use_onednn_bf16(Bf16Unit unit);

class ConvolutionStep {
 public:
  /// result: type of the image that the step writes; bf16 only with bf16 factors. Gradients of filters are fp32. like:
  /// the first step of this shape, direction and result, whose format of filters this one must use; nullptr: none.
  ConvolutionStep(OnednnWorkspace& workspace, const Convolution& shape, FactorType type, Direction direction,
                  ElementType result, std::size_t images, const ConvolutionStep* like);

  std::size_t images() const noexcept { return images_; }
  const std::string& implementation() const noexcept { return implementation_; }
  /// Size of the filters in this step's format, with its padding, in floats.
  std::size_t filter_elements() const { return (filters_.get_size() + sizeof(float) - 1) / sizeof(float); }

  /// Returns the filters in this step's format and type: a copy in `scratch`, or `plain` itself if both are equal.
  const void* arrange_filters(const float* plain, ScratchFloats& scratch) const;
  /// The inverse, for gradients: plain = or += arranged.
  void return_filters(float* arranged, std::span<float> plain, Accumulate accumulate, ScratchFloats& scratch) const;

  /// Runs on thread number `thread`. The direction selects which of x, w and y is written; the other two are factors.
  void run(std::size_t thread, const void* x, const void* w, const void* y);

 private:
  struct Arguments {
    dnnl::memory x, w, y, scratchpad;
    std::unordered_map<int, dnnl::memory> by_name;
  };
  template <class PrimitiveDescriptor>
  void take(const PrimitiveDescriptor& descriptor);
  void reorder(const dnnl::memory::desc& from, const float* read, const dnnl::memory::desc& to, float* written) const;

  OnednnWorkspace& workspace_;
  std::size_t images_;
  std::string implementation_;
  dnnl::primitive primitive_;
  dnnl::memory::desc filters_, plain_filters_, scratchpad_;
  dnnl::reorder reorder_;  ///< filters to oneDNN's format; their gradient back
  bool is_plain_ = false;
  std::vector<Arguments> arguments_;  ///< by thread
};

}  // namespace lockstep::model::cpu
