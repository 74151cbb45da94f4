#include "store/ids.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <random>

#include "base/canonical_json.h"

namespace faultline::store {
namespace {

class IdSource {
 public:
  Uuid next(std::int16_t bucket) {
    const std::lock_guard lock{mutex_};
    // A forked child must not go on with its parent's random numbers.
    if (const pid_t self = getpid(); self != owner_) reseed(self);
    const auto wall = std::chrono::system_clock::now().time_since_epoch();
    const auto now_ms =
        static_cast<std::uint64_t>(std::chrono::floor<std::chrono::milliseconds>(wall).count());
    if (now_ms > last_ms_) {
      last_ms_ = now_ms;
      count_ = 0;
    } else if (++count_ > 0x0FFFU) {
      // More than 4096 ids in a millisecond run ahead of the clock, and so stay in order.
      ++last_ms_;
      count_ = 0;
    }
    Uuid uuid;
    for (std::size_t i = 0; i < 6; ++i) uuid.bytes[i] = static_cast<std::uint8_t>(last_ms_ >> (40U - 8U * i));
    uuid.bytes[6] = static_cast<std::uint8_t>(0x70U | (count_ >> 8U));
    uuid.bytes[7] = static_cast<std::uint8_t>(count_);
    const std::uint64_t random = random_();
    std::memcpy(uuid.bytes.data() + 8, &random, 6);
    uuid.bytes[8] = static_cast<std::uint8_t>((uuid.bytes[8] & 0x3FU) | 0x80U);
    uuid.bytes[14] = static_cast<std::uint8_t>(static_cast<std::uint16_t>(bucket) >> 8U);
    uuid.bytes[15] = static_cast<std::uint8_t>(bucket);
    return uuid;
  }

 private:
  void reseed(pid_t self) {
    std::array<std::uint32_t, 8> words{};
    for (std::size_t i = 0; i < words.size(); i += 4) {
      const Uuid entropy = Uuid::random();
      std::memcpy(words.data() + i, entropy.bytes.data(), entropy.bytes.size());
    }
    std::seed_seq seed(words.begin(), words.end());
    random_.seed(seed);
    owner_ = self;
  }

  std::mutex mutex_;
  pid_t owner_ = -1;
  std::mt19937_64 random_;
  std::uint64_t last_ms_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace

JobId new_job_id(std::int16_t bucket) {
  static IdSource source;
  return JobId{source.next(bucket)};
}

std::int16_t bucket_of_key(std::string_view queue, std::string_view key, int buckets) {
  const Sha256 digest = sha256({bytes_of(queue), bytes_of("\x01"), bytes_of(key)});
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) number = (number << 8U) | static_cast<std::uint32_t>(digest[i]);
  return static_cast<std::int16_t>(number % static_cast<std::uint32_t>(buckets));
}

Sha256 fingerprint(const NewJob& job) {
  const std::string_view separator{"\0", 1};
  const bool is_json = job.encoding == Encoding::json;
  const std::string canonical = is_json ? canonical_json(job.payload) : std::string{};
  return sha256({bytes_of(job.kind), bytes_of(separator), bytes_of(is_json ? "j" : "b"),
                 bytes_of(is_json ? std::string_view{canonical} : std::string_view{job.payload})});
}

}  // namespace faultline::store
