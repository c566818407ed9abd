/// \file
/// Loaded before a program (LD_PRELOAD): counts the calls of MPI that two threads of a process are in at once, which
/// MPI_THREAD_SERIALIZED forbids. Each call takes 20 us longer, and each write to a run's metrics 0.6 s, so that
/// threads that do not exclude each other meet. At MPI_Finalize a line goes to the file that LOCKSTEP_MPI_OVERLAPS
/// names.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

namespace {

std::atomic<int> inside{0};
std::atomic<long> calls{0}, overlaps{0};

template <class Call>
int alone(Call call) {
  ++calls;
  if (inside.fetch_add(1) > 0) ++overlaps;
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  const int code = call();
  --inside;
  return code;
}

bool is_metrics(int descriptor) {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  return descriptor > 2 && readlink(link.c_str(), path, sizeof path - 1) > 0 && std::strstr(path, "metrics.jsonl");
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t size) {
  static const auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(dlsym(RTLD_NEXT, "write"));
  if (is_metrics(descriptor)) std::this_thread::sleep_for(std::chrono::milliseconds(600));
  return real(descriptor, data, size);
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  return alone([&] { return PMPI_Isend(data, count, type, to, tag, comm, request); });
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  return alone([&] { return PMPI_Irecv(data, count, type, from, tag, comm, request); });
}
int MPI_Recv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  return alone([&] { return PMPI_Recv(data, count, type, from, tag, comm, status); });
}
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* there, MPI_Status* status) {
  return alone([&] { return PMPI_Iprobe(from, tag, comm, there, status); });
}
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  return alone([&] { return PMPI_Test(request, done, status); });
}
int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
  return alone([&] { return PMPI_Testall(count, requests, done, statuses); });
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return alone([&] { return PMPI_Ibcast(data, count, type, root, comm, request); });
}
int MPI_Iallreduce(const void* data, void* sum, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm comm,
                   MPI_Request* request) {
  return alone([&] { return PMPI_Iallreduce(data, sum, count, type, operation, comm, request); });
}
int MPI_Cancel(MPI_Request* request) {
  return alone([&] { return PMPI_Cancel(request); });
}
int MPI_Request_free(MPI_Request* request) {
  return alone([&] { return PMPI_Request_free(request); });
}

int MPI_Finalize() {
  if (const char* const path = std::getenv("LOCKSTEP_MPI_OVERLAPS")) {
    const std::string line = "calls " + std::to_string(calls) + " overlaps " + std::to_string(overlaps) + "\n";
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file < 0 || write(file, line.data(), line.size()) < 0) std::perror(path);
    close(file);
  }
  return PMPI_Finalize();
}

}  // extern "C"
