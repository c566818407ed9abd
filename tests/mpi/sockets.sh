#!/usr/bin/env bash
# sockets.sh LAUNCH MPI_TESTS: six ranks that pretend to be six hosts connect by TCP to few others.
unshare -U --map-root-user --uts true 2>/dev/null || { echo "SKIPPED: no namespaces here"; exit 77; }
mpirun --version 2>/dev/null | grep -q "Open MPI" || { echo "SKIPPED: of Open MPI's connections"; exit 77; }
export OMPI_MCA_btl=self,tcp
exec "$1" 6 unshare -U --map-root-user --uts sh -c 'hostname "node$OMPI_COMM_WORLD_RANK"; exec "$0" --gtest_filter=Sockets.*' "$2"
