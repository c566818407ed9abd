// Read by LeakSanitizer at start. libhdf5 1.10 forgets a few hundred bytes each time it gives up on a file whose
// metadata is damaged, which the bit-flip tests do thousands of times; opening good files leaks nothing.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5\n"; }
