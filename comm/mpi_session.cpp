#include "comm/mpi_session.hpp"
