#include "service/encode.h"

namespace faultline::service {

void write(JsonWriter& out, const QueueOverview& overview) {
  codec::write(out, overview.queue, overview.counts);
}

}  // namespace faultline::service
