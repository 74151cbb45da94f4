#pragma once

#include <cstdint>
#include <string_view>

#include "base/sha256.h"
#include "faultline/job.h"

namespace faultline::store {

/// A new job id in a bucket: a version 7 UUID whose last two bytes are the bucket. Ids made by one
/// process grow, so that rows that are added together lie together. The time in them is this machine's
/// and orders nothing that matters. Thread-safe, and safe across fork.
[[nodiscard]] JobId new_job_id(std::int16_t bucket);

/// The bucket of a keyed job: from its key, so that one key has one place. faultline.bucket_of_key() in
/// SQL says the same.
[[nodiscard]] std::int16_t bucket_of_key(std::string_view queue, std::string_view key, int buckets);

/// What must be the same under the same idempotency key: kind, encoding and payload.
[[nodiscard]] Sha256 fingerprint(const NewJob& job);

}  // namespace faultline::store
