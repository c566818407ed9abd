/// \file
/// A network as a graph of ONNX operators: its computation in inference, with the input's normalisation first.
///
/// Inputs: "input", float32 [batch, features] or, for networks that read images and for cropped ones, [batch, height,
/// width, channels], the samples as `lockstep pack` stored them; "tokens", int64 [batch, sequence]; and each state of a
/// recurrent network by its name, float32 [batch, width] (zeros at the beginning of a text).
/// Outputs: "logits" and "probabilities" for classes, "predictions" for numbers, "logits" [batch, sequence, vocabulary]
/// for language models; "STATE/next" for each state.
#pragma once

#include "app/exchange/trained_network.hpp"
#include "io/exchange/onnx_model.hpp"

namespace lockstep::app {

/// Borrows the weights, which must outlive the model. Throws io::FileError for operations that ONNX cannot express.
io::OnnxModel onnx_model_of(const TrainedNetwork& trained);

}  // namespace lockstep::app
