/// \file
/// Only in sanitizer builds. Open MPI unloads its components in MPI_Finalize, before the leak checker runs. Leaks then
/// belong to no library, and lsan.supp cannot name them. With this file in the executable, nothing is unloaded.

extern "C" __attribute__((weak, visibility("default"))) int dlclose(void*) { return 0; }
