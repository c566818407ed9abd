/// \file
/// Conversion between text and values of training options that are neither numbers nor single names. Each parse_*()
/// returns "", or the error as the end of a sentence that begins with the option, and then does not change the value.
/// Private to the code that reads options.
#pragma once

#include <string>
#include <vector>

#include "app/options/train_options.hpp"

namespace lockstep::app {

std::string parse_normalization(const std::string& text, Normalization& value);
std::string check_boundaries(const std::string& text);
std::string parse_augment(const std::string& text, AugmentOptions& value);
std::string parse_limit(const std::string& text, TimeLimit& value);
std::string to_text(const TimeLimit& value);
std::string parse_every(const std::string& text, CheckpointEvery& value);
std::string to_text(const CheckpointEvery& value);
std::string parse_patterns(const std::string& text, std::vector<std::string>& value);
std::string to_text(const std::vector<std::string>& value);
/// Parses "PATTERN=FACTOR,...": the factor follows the last '='.
std::string parse_rate_scales(const std::string& text, std::vector<RateScale>& value);
std::string to_text(const std::vector<RateScale>& value);
std::string parse_agree(const std::string& text, AgreeMode& mode);
std::string agree_text(const AgreeMode& mode);
std::string parse_servers(const std::string& text, ServerChoice& servers);
std::string servers_text(const ServerChoice& servers);
std::string parse_class_weights(const std::string& text, ClassWeights& value);
std::string to_text(const ClassWeights& value);
std::string parse_resume(const std::string& text, Resume& value);
std::string to_text(const Resume& value);
/// Parses "auto", "channels-first", "nchw" or "image=nchw,volume=ncdhw".
std::string parse_layout(const std::string& text, io::Layouts& layout);
std::string layout_text(const io::Layouts& layout);

}  // namespace lockstep::app
