/// \file
/// A network as a graph of ONNX operators: what it computes in inference, its input's normalisation first.
///
/// Inputs: "input", float32 [batch, features] or, of networks that read images and of cropped ones, [batch, height,
/// width, channels], the samples as `lockstep pack` stored them; "tokens", int64 [batch, sequence]; and for each state
/// of a recurrent network its name, float32 [batch, width] (zeros at the beginning of a text).
/// Outputs: "logits" and "probabilities" where there are classes, "predictions" where there are numbers, "logits"
/// [batch, sequence, vocabulary] of language models; "STATE/next" for each state.
#pragma once

#include "app/exchange/trained_network.hpp"
#include "io/exchange/onnx_model.hpp"

namespace lockstep::app {

/// Borrows the weights, which must outlive the model. Throws io::FileError for what has no place in a graph.
io::OnnxModel onnx_model_of(const TrainedNetwork& trained);

}  // namespace lockstep::app
