#pragma once

#include <string>
#include <string_view>

namespace faultline {

/// What a JSON text says, written in the one way in which PostgreSQL's `jsonb` writes it: no matter the white
/// space, the order of an object's members, the escapes in strings, and exponents up to 64. So what a
/// producer writes in any language and what `faultline.enqueue` got as jsonb are the same bytes if they are
/// the same value.
///
/// Where `jsonb` forgets something, this does not: members that have the same name all stay, in their order;
/// 1 and 1.0 are two numbers, as they are for `jsonb`; a number with a larger exponent, and what is nested
/// deeper than 128, stay as they were written.
///
/// The text is one that `find_json_problem` has found nothing wrong with.
[[nodiscard]] std::string canonical_json(std::string_view text);

}  // namespace faultline
