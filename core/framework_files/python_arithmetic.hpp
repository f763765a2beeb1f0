// Values that constants of a script make, and what operators make of them.
#pragma once
#include <cstdint>
#include <string>

#include "core/framework_files/python_values.hpp"

namespace trainhost::framework_files::python {

PyValue known(runfile::Value v);
PyValue none();
PyValue of_text(std::string text);
PyValue of_flag(bool flag);
PyValue of_integer(std::int64_t n);
/// Not known if it is not finite.
PyValue of_number(double n);
PyValue not_known(std::string why);

bool is_number(const PyValue& v);
bool is_text(const PyValue& v);
/// Python's truth of a known value.
bool holds(const PyValue& v);

/// The number of a word: 4_096, 1e-4, 0x10. Complex ones are not known.
PyValue number_of(std::string text);
/// + - * / // % ** << of numbers, + of texts and of lists. Not known for other values, above 64 bits, and for
/// a division by 0.
PyValue arithmetic(const std::string& operation, const PyValue& a, const PyValue& b);
/// == != < <= > >= is in, and their negations. Not known for other values.
PyValue comparison(const std::string& operation, const PyValue& a, const PyValue& b);

}  // namespace trainhost::framework_files::python
