#include "model/cpu/onednn_steps.hpp"

#include <cassert>

#include <dlfcn.h>

#include "model/cpu/loops/element_loops.hpp"

namespace lockstep::model::cpu {

namespace {

using dnnl::memory;

/// Makes a convolution primitive in any of the three directions, with the interface of oneDNN 2 (which needs a
/// descriptor) or 3.
template <class Primitive, class... Arguments>
typename Primitive::primitive_desc describe(const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
                                            const dnnl::convolution_forward::primitive_desc* forward,
                                            const Arguments&... arguments) {
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  if constexpr (requires { typename Primitive::desc; }) {
    if constexpr (std::is_same_v<Primitive, dnnl::convolution_forward>) {
      return {typename Primitive::desc(dnnl::prop_kind::forward_training, kDirect, arguments...), attributes, engine};
    } else {
      return {typename Primitive::desc(kDirect, arguments...), attributes, engine, *forward};
    }
  } else {
    if constexpr (std::is_same_v<Primitive, dnnl::convolution_forward>) {
      return typename Primitive::primitive_desc(engine, dnnl::prop_kind::forward_training, kDirect, arguments...,
                                                attributes);
    } else {
      return typename Primitive::primitive_desc(engine, kDirect, arguments..., *forward, attributes);
    }
  }
}

void* writable(const void* pointer) { return const_cast<void*>(pointer); }  // oneDNN has no constant memory

}  // namespace

std::span<float> ScratchFloats::at_least(std::size_t count) {
  if (floats_.size() < count) {
    std::pmr::vector<float>(&memory_).swap(floats_);  // frees the old memory first
    floats_.resize(count);
  }
  return std::span<float>(floats_).first(count);
}

OnednnWorkspace::OnednnWorkspace(std::size_t threads) : engine(dnnl::engine::kind::cpu, 0), scratchpads(threads) {
  for (std::size_t i = 0; i < threads; ++i) streams.emplace_back(engine);
}

void OnednnWorkspace::claim_thread() const noexcept {
  // OpenMP keeps this number per thread. oneDNN loads the OpenMP runtime if it was built for it (as in Linux
  // distributions). We do not compile for OpenMP, so the function is looked up by name.
  static const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_threads != nullptr) set_threads(1);
}

std::string_view name_of(Direction direction) noexcept {
  switch (direction) {
    case Direction::forward:
      return "the forward pass";
    case Direction::backward_input:
      return "the gradient of the input";
    case Direction::backward_filters:
      return "the gradient of the filters";
  }
  return "";
}

bool use_onednn_bf16(Bf16Unit unit) {
  const auto has = [](dnnl::cpu_isa set) {
    const auto bits = static_cast<unsigned>(set);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
  };
  if (unit == Bf16Unit::avx512) static_cast<void>(dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16));
  return has(dnnl::cpu_isa::avx512_core_bf16);
}

ConvolutionStep::ConvolutionStep(OnednnWorkspace& workspace, const Convolution& shape, FactorType factors,
                                 Direction direction, ElementType result, std::size_t images,
                                 const ConvolutionStep* like)
    : workspace_(workspace), images_(images) {
  workspace.claim_thread();
  constexpr auto kSums = memory::data_type::f32;
  const auto type = factors == FactorType::bf16 ? memory::data_type::bf16 : kSums;
  const auto written = result == ElementType::bfloat16 ? memory::data_type::bf16 : kSums;
  const auto type_of = [&](Direction writer) { return direction == writer ? written : type; };
  const auto count = static_cast<memory::dim>(images);
  using Tag = memory::format_tag;
  // Series and images have two directions, volumes three.
  const bool is_volume = shape.in.depth > 1 || shape.window.depth.reach() > 1 || shape.out.depth > 1;
  const std::size_t first = is_volume ? 0 : 1;
  const auto sizes_of = [&](const ImageShape& image) {
    memory::dims sizes{count, image.channels};
    const auto extents = image.extents();
    sizes.insert(sizes.end(), extents.begin() + static_cast<std::ptrdiff_t>(first), extents.end());
    return sizes;
  };
  memory::dims filter_sizes{shape.out.channels / shape.groups, shape.channels_read()};
  if (shape.groups > 1) filter_sizes.insert(filter_sizes.begin(), shape.groups);
  memory::dims strides, gaps, before, after;
  const auto sweeps = shape.window.sweeps();
  for (const Sweep& sweep : std::span(sweeps).subspan(first)) {
    filter_sizes.push_back(sweep.size);
    strides.push_back(sweep.stride);
    gaps.push_back(sweep.dilation - 1);
    before.push_back(sweep.before);
    after.push_back(sweep.after);
  }
  const Tag channels_last = is_volume ? Tag::ndhwc : Tag::nhwc;
  const memory::desc x(sizes_of(shape.in), type_of(Direction::backward_input), channels_last);
  const memory::desc y(sizes_of(shape.out), type_of(Direction::forward), channels_last);
  plain_filters_ =
      memory::desc(filter_sizes, kSums,
                   shape.groups > 1 ? (is_volume ? Tag::dhwigo : Tag::hwigo) : (is_volume ? Tag::dhwio : Tag::hwio));
  const memory::desc w =
      like != nullptr ? like->filters_
                      : memory::desc(filter_sizes, type_of(Direction::backward_filters), memory::format_tag::any);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);

  // Backward primitives need a forward one as a hint. Its filters may have another format.
  const memory::desc any(filter_sizes, type, memory::format_tag::any);
  const auto forward = describe<dnnl::convolution_forward>(
      workspace.engine, attributes, nullptr, memory::desc(sizes_of(shape.in), type, channels_last),
      direction == Direction::forward ? w : any, y, strides, gaps, before, after);
  if (direction == Direction::forward) {
    primitive_ = dnnl::convolution_forward(forward);
    filters_ = forward.weights_desc();
    take(forward);
  } else if (direction == Direction::backward_input) {
    const auto form = describe<dnnl::convolution_backward_data>(workspace.engine, attributes, &forward, x, w, y,
                                                                strides, gaps, before, after);
    primitive_ = dnnl::convolution_backward_data(form);
    filters_ = form.weights_desc();
    take(form);
  } else {
    const auto form = describe<dnnl::convolution_backward_weights>(workspace.engine, attributes, &forward, x, w, y,
                                                                   strides, gaps, before, after);
    primitive_ = dnnl::convolution_backward_weights(form);
    filters_ = form.diff_weights_desc();
    take(form);
  }
  is_plain_ = filters_ == plain_filters_;
  if (!is_plain_) {
    const auto& engine = workspace.engine;
    if (direction == Direction::backward_filters) {
      reorder_ = dnnl::reorder(dnnl::reorder::primitive_desc(engine, filters_, engine, plain_filters_));
    } else {
      reorder_ = dnnl::reorder(dnnl::reorder::primitive_desc(engine, plain_filters_, engine, filters_));
    }
  }
  const bool forwards = direction == Direction::forward;
  const int x_name = direction == Direction::backward_input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC;
  const int w_name = direction == Direction::backward_filters ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
  const int y_name = forwards ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST;
  for (std::size_t thread = 0; thread < workspace.streams.size(); ++thread) {
    Arguments arguments{.x = memory(x, workspace.engine, nullptr),
                        .w = memory(filters_, workspace.engine, nullptr),
                        .y = memory(y, workspace.engine, nullptr),
                        .scratchpad = memory(scratchpad_, workspace.engine, nullptr),
                        .by_name = {}};
    arguments.by_name = {{x_name, arguments.x},
                         {w_name, arguments.w},
                         {y_name, arguments.y},
                         {DNNL_ARG_SCRATCHPAD, arguments.scratchpad}};
    arguments_.push_back(std::move(arguments));
    workspace.scratchpads[thread].at_least(scratchpad_.get_size() / sizeof(float) + 1);
  }
}

template <class PrimitiveDescriptor>
void ConvolutionStep::take(const PrimitiveDescriptor& descriptor) {
  implementation_ = descriptor.impl_info_str();
  scratchpad_ = descriptor.scratchpad_desc();
}

void ConvolutionStep::reorder(const memory::desc& from, const float* read, const memory::desc& to,
                              float* written) const {
  workspace_.claim_thread();
  memory source(from, workspace_.engine, writable(read)), target(to, workspace_.engine, written);
  dnnl::stream stream = workspace_.streams.front();
  reorder_.execute(stream, source, target);
  stream.wait();
}

const void* ConvolutionStep::arrange_filters(const float* plain, ScratchFloats& scratch) const {
  if (is_plain_) return plain;
  float* const arranged = scratch.at_least(filter_elements()).data();
  reorder(plain_filters_, plain, filters_, arranged);
  return arranged;
}

void ConvolutionStep::return_filters(float* arranged, std::span<float> plain, Accumulate accumulate,
                                     ScratchFloats& scratch) const {
  if (!is_plain_) {
    const auto to = accumulate == Accumulate::yes ? scratch.at_least(plain.size()) : plain;
    reorder(filters_, arranged, plain_filters_, to.data());
    arranged = to.data();
  }
  if (arranged == plain.data()) return;
  const std::span<const float> from(arranged, plain.size());
  if (accumulate == Accumulate::yes) {
    add_scaled(from, 1, plain);
  } else {
    std::ranges::copy(from, plain.begin());
  }
}

void ConvolutionStep::run(std::size_t thread, const void* x, const void* w, const void* y) {
  workspace_.claim_thread();
  Arguments& arguments = arguments_[thread];
  arguments.x.set_data_handle(writable(x));
  arguments.w.set_data_handle(writable(w));
  arguments.y.set_data_handle(writable(y));
  // Set in each call, since a later shape may have moved the memory.
  arguments.scratchpad.set_data_handle(workspace_.scratchpads[thread].at_least(1).data());
  primitive_.execute(workspace_.streams[thread], arguments.by_name);
  workspace_.streams[thread].wait();
}

}  // namespace lockstep::model::cpu
