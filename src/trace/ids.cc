#include "trace/ids.h"

#include <cstring>
#include <random>
#include <span>

#include "faultline/uuid.h"

namespace faultline::trace {
namespace {

std::mt19937_64 seeded() {
  std::array<std::uint32_t, 8> seed{};
  for (std::size_t half = 0; half < 2; ++half) {
    const Uuid random = Uuid::random();
    std::memcpy(&seed[4 * half], random.bytes.data(), random.bytes.size());
  }
  std::seed_seq sequence(seed.begin(), seed.end());
  return std::mt19937_64{sequence};
}

std::mt19937_64& generator() {
  thread_local std::mt19937_64 own = seeded();
  return own;
}

template <class Id>
Id random_id() {
  Id id{};
  while (id == Id{}) {
    for (std::size_t at = 0; at < id.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t bits = generator()();
      std::memcpy(id.data() + at, &bits, sizeof bits);
    }
  }
  return id;
}

}  // namespace

TraceId new_trace_id() { return random_id<TraceId>(); }
SpanId new_span_id() { return random_id<SpanId>(); }

bool chance(double ratio) {
  if (ratio >= 1) return true;
  return ratio > 0 && std::uniform_real_distribution<double>{}(generator()) < ratio;
}

}  // namespace faultline::trace
