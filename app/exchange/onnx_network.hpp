/// \file
/// A network as a graph of ONNX operators: its computation in inference, including the normalisation of the input.
///
/// Inputs: "input", float32 [batch, features], or [batch, height, width, channels] for networks that read images and
/// for cropped ones: the samples as `lockstep pack` stored them. "tokens", int64 [batch, sequence]. Each state of a
/// recurrent network by its name, float32 [batch, width]; zeros at the beginning of a text.
#pragma once

#include "app/exchange/trained_network.hpp"
#include "io/exchange/onnx_model.hpp"

namespace lockstep::app {

/// Makes the model. It borrows the weights, which must outlive it. Throws io::FileError for operations that ONNX cannot
/// express.
io::OnnxModel onnx_model_of(const TrainedNetwork& trained);

}  // namespace lockstep::app
