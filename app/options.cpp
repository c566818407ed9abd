#include "app/options.hpp"
