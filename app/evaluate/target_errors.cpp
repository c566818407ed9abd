#include "app/evaluate/target_errors.hpp"

#include <cmath>
#include <limits>

namespace lockstep::app {

void TargetErrors::add(double prediction, double target) {
  const double error = prediction - target;
  absolute += std::abs(error);
  squared += error * error;
  ++samples;
  const double from_mean = target - mean;
  mean += from_mean / samples;
  spread += from_mean * (target - mean);
}

void TargetErrors::add(const TargetErrors& other) {
  if (other.samples == 0) return;
  const double together = samples + other.samples, apart = other.mean - mean;
  absolute += other.absolute;
  squared += other.squared;
  spread += other.spread + apart * apart * samples * other.samples / together;
  mean += apart * other.samples / together;
  samples = together;
}

double TargetErrors::root_mean_squared_error() const { return std::sqrt(squared / samples); }

double TargetErrors::r_squared() const {
  return spread > 0 ? 1 - squared / spread : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace lockstep::app
