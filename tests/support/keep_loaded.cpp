/// \file
/// Sanitizer builds only. Open MPI unloads its components in MPI_Finalize, before the leak checker looks: their leaks
/// then belong to no library, and lsan.supp cannot name them. With this in the executable nothing is unloaded.

extern "C" __attribute__((weak, visibility("default"))) int dlclose(void*) { return 0; }
