#pragma once

#include <string>
#include <string_view>

namespace faultline {

// Names, errors and payloads come from anywhere, and end up in terminals. What could play tricks there does
// not reach one: control characters (the C1 ones too, which terminals take for escape sequences), characters
// that turn the direction of writing, so that a line reads as what it is not, separators of lines, and bytes
// that are no text.

/// On one line: a question mark stands for each of them.
[[nodiscard]] std::string printable(std::string_view text);

/// Text of several lines, which may be coloured: line breaks, tabs and colours stay.
[[nodiscard]] std::string printable_lines(std::string_view text);

/// JSON that says the same: in it they can only stand in strings, and are written as \u escapes.
[[nodiscard]] std::string printable_json(std::string_view json);

}  // namespace faultline
