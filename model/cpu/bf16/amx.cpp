#include "model/cpu/bf16/avx512.hpp"
#include "model/cpu/instruction_sets.hpp"

#if LOCKSTEP_HAS_INSTRUCTION_SETS

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOCKSTEP_TILES __attribute__((target("amx-tile,amx-bf16")))

namespace lockstep::model::cpu {

namespace {

/// The operand of _tile_loadconfig (Intel 64 manual, volume 1, 18.3): rows and bytes of a row of each tile.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Tiles 0 to 3 hold the sums (two rows and two columns of tiles), 4 and 5 the left factor, 6 and 7 the right factor.
LOCKSTEP_TILES void configure(std::size_t rows) {
  const std::size_t first = rows_of_first_tile(rows), second = rows - first;
  TileConfiguration configuration;
  const std::size_t of_tile[8] = {first, first, second, second, first, second, 16, 16};
  for (int tile = 0; tile < 8; ++tile) {
    configuration.bytes[tile] = of_tile[tile] == 0 ? 0 : 64;
    configuration.rows[tile] = static_cast<std::uint8_t>(of_tile[tile]);
  }
  // The intrinsic of GCC 12 declares only the first eight bytes as read. Without this the compiler may not write the
  // others.
  asm volatile("" : : "r"(&configuration) : "memory");
  _tile_loadconfig(&configuration);
}

LOCKSTEP_TILES void release() { _tile_release(); }

LOCKSTEP_TILES void multiply(std::size_t rows, std::size_t steps, const Bf16* a, const Bf16* b, float* c,
                             std::size_t stride, bool accumulate) {
  const std::size_t first = rows_of_first_tile(rows), bytes = stride * sizeof(float);
  const bool two = rows > first;
  asm volatile("" : : : "memory");  // _tile_loadd does not declare that it reads memory
  if (accumulate) {
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + 16, bytes);
    if (two) {
      _tile_loadd(2, c + first * stride, bytes);
      _tile_loadd(3, c + first * stride + 16, bytes);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (two) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  for (std::size_t step = 0; step < steps; ++step, a += kBf16Step, b += kBf16Step) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kBf16Tile, 64);
    _tile_dpbf16ps(1, 4, 7);
    if (two) {
      _tile_loadd(5, a + kBf16Tile, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + 16, bytes);
  if (two) {
    _tile_stored(2, c + first * stride, bytes);
    _tile_stored(3, c + first * stride + 16, bytes);
  }
  asm volatile("" : : : "memory");
}

void pack_left(const Bf16Factor& a, std::size_t rows, std::size_t inner, Bf16* panel) {
  avx512_pack_left(a, rows, rows_of_first_tile(rows), inner, panel);
}

constexpr Bf16Kernels kKernels{.pack_left = pack_left,
                               .pack_right = avx512_pack_right,
                               .multiply = multiply,
                               .begin = configure,
                               .end = release,
                               .round = avx512_round,
                               .max_inner = 1024};

}  // namespace

const Bf16Kernels* amx_kernels() noexcept { return &kKernels; }

bool processor_has_amx() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTiles = 1u << 24, kBf16 = 1u << 22;
  // AVX512-BF16 packs the panels. Every processor with AMX has it.
  return processor_has_avx512_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTiles) != 0 &&
         (d & kBf16) != 0;
}

bool system_grants_amx() noexcept {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM; Linux 5.16 and later
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace lockstep::model::cpu

#else

namespace lockstep::model::cpu {
const Bf16Kernels* amx_kernels() noexcept { return nullptr; }
bool processor_has_amx() noexcept { return false; }
bool system_grants_amx() noexcept { return false; }
}  // namespace lockstep::model::cpu

#endif
