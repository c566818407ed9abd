#include "model/tensor.hpp"
