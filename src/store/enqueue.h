#pragma once

#include "store/backend.h"

namespace faultline::store {

[[nodiscard]] Expected<std::vector<Submission>> enqueue(Backend& backend, std::span<const NewJob> jobs,
                                                        Deadline deadline);
/// Inside the transaction that is open on a connection of the caller's.
[[nodiscard]] Expected<std::vector<Submission>> enqueue_in(Backend& backend, pg::Connection& connection,
                                                           std::span<const NewJob> jobs, Deadline deadline);
/// The two halves of `enqueue_in`: the problem with jobs, if there is one, and adding those that have none.
[[nodiscard]] std::optional<Error> check_jobs(Backend& backend, std::span<const NewJob> jobs,
                                              Deadline deadline);
[[nodiscard]] pg::Expected<std::vector<Submission>> add_jobs_in(Backend& backend, pg::Connection& connection,
                                                                std::span<const NewJob> jobs,
                                                                Deadline deadline);
[[nodiscard]] Expected<std::size_t> enqueue_bulk(Backend& backend,
                                                 const std::function<std::optional<NewJob>()>& next);

}  // namespace faultline::store
