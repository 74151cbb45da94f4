#include "pg/binary_copy.h"

namespace faultline::pg {

void BinaryCopy::header() {
  using namespace std::string_view_literals;
  buffer_.append("PGCOPY\n\377\r\n\0"sv);
  append_big_endian(buffer_, std::uint32_t{0});  // flags
  append_big_endian(buffer_, std::uint32_t{0});  // length of the header's extension
}

BinaryCopy& BinaryCopy::add_jsonb(std::string_view json) {
  append_big_endian(buffer_, static_cast<std::uint32_t>(json.size() + 1));
  buffer_.push_back('\1');  // jsonb's version
  buffer_.append(json);
  return *this;
}

BinaryCopy& BinaryCopy::add_text_array(const std::vector<std::string>& values) {
  const std::size_t at = buffer_.size();
  append_big_endian(buffer_, std::uint32_t{0});
  append_big_endian(buffer_, std::uint32_t{1});  // dimensions
  append_big_endian(buffer_, std::uint32_t{0});  // no NULL among the elements
  append_big_endian(buffer_, static_cast<std::uint32_t>(Type::text));
  append_big_endian(buffer_, static_cast<std::uint32_t>(values.size()));
  append_big_endian(buffer_, std::uint32_t{1});  // the first index
  for (const std::string& value : values) append_sized_value(buffer_, std::string_view{value});
  store_big_endian(buffer_, at, static_cast<std::uint32_t>(buffer_.size() - at - 4));
  return *this;
}

BinaryCopy& BinaryCopy::add_null() {
  append_big_endian(buffer_, kNullLength);
  return *this;
}

}  // namespace faultline::pg
