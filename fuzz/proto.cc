// The messages of proto/: any that can be parsed is converted or refused, and what was converted goes there
// and back.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include "fuzz/target.h"
#include "wire/convert.h"

namespace faultline::fuzz {
namespace {

namespace pb = wire::pb;

template <class T>
void require_good_refusal(const Expected<T>& answer) {
  require(!answer.error().message.empty(), "a refusal says why");
}

template <class T>
std::string written(T value) {
  return wire::to_proto(std::move(value)).SerializeAsString();
}

std::set<int> set_fields(const google::protobuf::Message& message) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  std::set<int> numbers;
  for (const auto* field : fields) numbers.insert(field->number());
  return numbers;
}

/// Of messages that may be refused.
template <class Message>
void convert(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const auto given = set_fields(message);
  auto value = wire::from_proto(std::move(message));
  if (!value) return require_good_refusal(value);
  const std::string first = written(*value);
  Message again;
  require(again.ParseFromString(first), "what goes out can be parsed");
  require(std::ranges::includes(set_fields(again), given), "no field is lost on the way");
  auto back = wire::from_proto(std::move(again));
  require(back.has_value(), "what was accepted is accepted again");
  require(written(std::move(*back)) == first, "and means the same");
}

/// Of messages that say something in any case.
template <class Message>
void convert_always(std::string_view bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  (void)wire::from_proto(std::move(message));
}

}  // namespace

void run(std::string_view input) {
  // It would write a line for every string that is not UTF-8.
  [[maybe_unused]] static auto* const before = google::protobuf::SetLogHandler(nullptr);
  switch (take_byte(input) % 12) {
    case 0:
      return convert<pb::Lease>(input);
    case 1:
      return convert<pb::NewJob>(input);
    case 2:
      return convert<pb::Submission>(input);
    case 3:
      return convert<pb::JobAssignment>(input);
    case 4:
      return convert<pb::Outcome>(input);
    case 5:
      return convert<pb::Result>(input);
    case 6:
      return convert<pb::Progress>(input);
    case 7:
      return convert<pb::EffectKey>(input);
    case 8:
      return convert<pb::EffectResult>(input);
    case 9:
      return convert_always<pb::Verdict>(input);
    case 10:
      return convert_always<pb::Beat>(input);
    default:
      return convert_always<pb::SetQueueRequest>(input);
  }
}

}  // namespace faultline::fuzz
