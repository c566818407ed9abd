#include "io/checksum.hpp"
