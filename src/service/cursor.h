#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "faultline/store.h"
#include "service/problem.h"

namespace faultline::service {

/// Where the next page begins, as text that goes through a URL unchanged and says nothing to its holder. It
/// is good for the filter that it was made with, and for no other. (It grants nothing: access is checked on
/// every page.)
[[nodiscard]] std::string to_cursor(const ListRequest& filter, JobId before);
[[nodiscard]] ServiceResult<JobId> from_cursor(const ListRequest& filter, std::string_view cursor);

[[nodiscard]] std::string to_cursor(DatabaseTime before);
[[nodiscard]] ServiceResult<DatabaseTime> stale_writes_from_cursor(std::string_view cursor);

}  // namespace faultline::service
