#include "pg/params.h"

#include <limits>

#include "pg/check.h"
#include "pg/encoding.h"

namespace faultline::pg {
namespace {

// An array's binary header: dimensions, has-nulls, element oid, then size and lower bound of the dimension.
constexpr std::size_t kHasNullAt = 4;
constexpr std::size_t kSizeAt = 12;
constexpr std::size_t kHeaderWithoutDimension = 12;

Type array_of(Type element) {
  switch (element) {
    case Type::boolean:
      return Type::boolean_array;
    case Type::bytea:
      return Type::bytea_array;
    case Type::int2:
      return Type::int2_array;
    case Type::int4:
      return Type::int4_array;
    case Type::int8:
      return Type::int8_array;
    case Type::text:
      return Type::text_array;
    case Type::float8:
      return Type::float8_array;
    case Type::timestamptz:
      return Type::timestamptz_array;
    case Type::uuid:
      return Type::uuid_array;
    default:
      check(false, "arrays hold scalars; send json as text and cast it in SQL");
      return element;
  }
}

}  // namespace

void Params::begin_value(Type type) {
  check(!open_array_, "end_array() comes before the next parameter");
  types_.push_back(static_cast<std::uint32_t>(type));
  offsets_.push_back(buffer_.size());
  lengths_.push_back(0);
}

void Params::end_value() {
  const std::size_t length = buffer_.size() - offsets_.back();
  check(length <= static_cast<std::size_t>(std::numeric_limits<int>::max()), "a parameter is at most 2 GiB");
  lengths_.back() = static_cast<int>(length);
}

template <class T>
Params& Params::add_value(Type type, const T& value) {
  begin_value(type);
  append_value(buffer_, value);
  end_value();
  return *this;
}

template <class T>
Params& Params::push_value(Type type, const T& value) {
  check(open_array_ == type, "push() takes the element type given to begin_array()");
  append_sized_value(buffer_, value);
  ++open_array_size_;
  return *this;
}

Params& Params::add(bool value) { return add_value(Type::boolean, value); }
Params& Params::add(std::int16_t value) { return add_value(Type::int2, value); }
Params& Params::add(std::int32_t value) { return add_value(Type::int4, value); }
Params& Params::add(std::int64_t value) { return add_value(Type::int8, value); }
Params& Params::add(double value) { return add_value(Type::float8, value); }
Params& Params::add(std::string_view value) { return add_value(Type::text, value); }
Params& Params::add(BytesView value) { return add_value(Type::bytea, value); }
Params& Params::add(const Uuid& value) { return add_value(Type::uuid, value); }
Params& Params::add(DatabaseTime value) { return add_value(Type::timestamptz, value); }

Params& Params::add_null(Type type) {
  begin_value(type);
  offsets_.back() = kNone;
  return *this;
}

Params& Params::begin_array(Type element) {
  begin_value(array_of(element));
  append_big_endian(buffer_, std::uint32_t{1});
  append_big_endian(buffer_, std::uint32_t{0});
  append_big_endian(buffer_, static_cast<std::uint32_t>(element));
  append_big_endian(buffer_, std::uint32_t{0});
  append_big_endian(buffer_, std::uint32_t{1});
  open_array_ = element;
  open_array_size_ = 0;
  open_array_has_null_ = false;
  return *this;
}

Params& Params::push(bool value) { return push_value(Type::boolean, value); }
Params& Params::push(std::int16_t value) { return push_value(Type::int2, value); }
Params& Params::push(std::int32_t value) { return push_value(Type::int4, value); }
Params& Params::push(std::int64_t value) { return push_value(Type::int8, value); }
Params& Params::push(double value) { return push_value(Type::float8, value); }
Params& Params::push(std::string_view value) { return push_value(Type::text, value); }
Params& Params::push(BytesView value) { return push_value(Type::bytea, value); }
Params& Params::push(const Uuid& value) { return push_value(Type::uuid, value); }
Params& Params::push(DatabaseTime value) { return push_value(Type::timestamptz, value); }

Params& Params::push_null() {
  check(open_array_.has_value(), "push_null() comes after begin_array()");
  append_big_endian(buffer_, kNullLength);
  open_array_has_null_ = true;
  ++open_array_size_;
  return *this;
}

Params& Params::end_array() {
  check(open_array_.has_value(), "end_array() comes after begin_array()");
  const std::size_t start = offsets_.back();
  if (open_array_size_ == 0) {
    store_big_endian(buffer_, start, 0);
    buffer_.resize(start + kHeaderWithoutDimension);
  } else {
    store_big_endian(buffer_, start + kHasNullAt, open_array_has_null_ ? 1 : 0);
    store_big_endian(buffer_, start + kSizeAt, open_array_size_);
  }
  open_array_.reset();
  end_value();
  return *this;
}

const char* Params::value(int index) const {
  const std::size_t offset = offsets_[static_cast<std::size_t>(index)];
  return offset == kNone ? nullptr : buffer_.data() + offset;
}

int Params::length(int index) const { return lengths_[static_cast<std::size_t>(index)]; }

}  // namespace faultline::pg
