// Scalars of a YAML text: plain, in quotation marks, and blocks of lines.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

#include "tools/web/yaml_scanner.hpp"

namespace YAML {

class ScalarReader : public Scanner {
 public:
  using Scanner::Scanner;

 protected:
  void check_first_of_plain() const {
    constexpr std::string_view kReserved = ",[]{}#&*!|>'\"%@`";
    if (kReserved.find(peek()) != npos) fail(std::string("a value cannot begin with ") + peek());
  }

  /// The rest of a plain scalar on this line, without blanks at its end.
  std::string plain_line(bool flow) {
    const std::size_t begin = at_;
    while (!at_end() && peek() != '\n' && !at_colon(flow) && !at_comment() && !(flow && is_flow_mark(peek())))
      advance();
    std::size_t end = at_;
    while (end > begin && is_blank(text_[end - 1])) --end;
    return text_.substr(begin, end - begin);
  }

  /// Line ends within a scalar: one becomes a blank, each further one a line end.
  static std::string folded(std::size_t line_ends) {
    return line_ends == 1 ? " " : std::string(line_ends - 1, '\n');
  }

  Node plain(int parent, bool flow) {
    Node n = node(Node::Kind::kScalar, mark());
    check_first_of_plain();
    std::string& s = n.data->scalar = plain_line(flow);
    while (peek() == '\n') {
      const std::size_t at = at_, begin = line_begin_;
      const int line = line_;
      std::size_t ends = 0;
      for (; peek() == '\n'; ++ends) {
        advance();
        skip_blanks();
      }
      const bool ends_here = at_document_end() || at_comment() ||
                             (flow ? is_flow_mark(peek()) || at_colon(true) : column() <= parent);
      if (ends_here) {
        at_ = at, line_begin_ = begin, line_ = line;
        break;
      }
      if (!flow && key_ahead()) fail("a key is in the middle of a value; check the indentation");
      s += folded(ends) + plain_line(flow);
    }
    return n;
  }

  Node quoted() {
    Node n = node(Node::Kind::kScalar, mark());
    n.data->tag = "!";
    std::string& s = n.data->scalar;
    const char quote = peek();
    std::size_t kept = 0;  // bytes of s that blanks before a line end do not shorten: escapes
    for (advance(); at_end() || peek() != quote || (quote == '\'' && peek(1) == '\'');) {
      if (at_end()) throw Exception{n.data->mark, "a quotation mark is not closed"};
      if (at_document_end()) fail("the document ends within quotation marks");
      if (peek() == '\n') {
        while (s.size() > kept && is_blank(s.back())) s.pop_back();
        std::size_t ends = 0;
        while (peek() == '\n') {
          advance(), ++ends;
          skip_blanks();
        }
        s += folded(ends);
      } else if (quote == '\'' && peek() == '\'') {
        s += '\'', advance(2);
      } else if (quote == '"' && peek() == '\\') {
        escape(s);
        kept = s.size();
      } else {
        s += peek(), advance();
      }
    }
    advance();
    return n;
  }

  void escape(std::string& out) {
    advance();
    const char c = peek();
    constexpr std::string_view kNames = "0abt\tnvfre \"/\\", kMeanings{"\0\a\b\t\t\n\v\f\r\x1b \"/\\", 14};
    if (c == '\n') {  // the line goes on, after empty lines
      advance();
      for (skip_blanks(); peek() == '\n'; skip_blanks()) out += '\n', advance();
    } else if (const std::size_t i = kNames.find(c); i != npos) {
      out += kMeanings[i], advance();
    } else if (c == 'N' || c == '_' || c == 'L' || c == 'P') {
      append_utf8(out, c == 'N' ? 0x85 : c == '_' ? 0xa0 : c == 'L' ? 0x2028 : 0x2029), advance();
    } else if (const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0) {
      advance();
      unsigned long code = hexadecimal(digits);
      // JSON writes characters beyond U+FFFF as two halves.
      if (code >= 0xd800 && code < 0xdc00 && peek() == '\\' && peek(1) == 'u') {
        advance(2);
        code = 0x10000 + ((code - 0xd800) << 10) + (hexadecimal(4) - 0xdc00);
      }
      if (code > 0x10ffff) fail("not a character");
      append_utf8(out, code);
    } else {
      fail(std::string("the escape \\") + c + " is not known");
    }
  }

  unsigned long hexadecimal(int digits) {
    unsigned long code = 0;
    for (; digits > 0; --digits, advance()) {
      const char h = peek();
      const int d = h >= '0' && h <= '9'   ? h - '0'
                    : h >= 'a' && h <= 'f' ? h - 'a' + 10
                    : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                           : -1;
      if (d < 0) fail("an escape has too few digits");
      code = code * 16 + static_cast<unsigned long>(d);
    }
    return code;
  }

  Node block_scalar(int parent) {
    Node n = node(Node::Kind::kScalar, mark());
    n.data->tag = "!";
    const bool fold = peek() == '>';
    char chomp = ' ';
    int indent = -1;
    for (advance(); !ends_word(0); advance()) {
      if (peek() == '+' || peek() == '-')
        chomp = peek();
      else if (peek() >= '1' && peek() <= '9')
        indent = std::max(parent, 0) + (peek() - '0');
      else
        fail("this is not the head of a text block");
    }
    if (!at_line_end()) fail("text after the head of a text block");
    advance();
    std::string& s = n.data->scalar;
    std::size_t ends = 0;        // line ends since the last line with text
    bool after_indented = true;  // the last line keeps the line ends around it; the first has none before
    bool any = false;
    while (!at_end()) {
      std::size_t text_at = text_.find_first_not_of(' ', line_begin_);
      if (text_at == npos) text_at = text_.size();
      const int blanks = static_cast<int>(text_at - line_begin_);
      const bool empty = text_at == text_.size() || text_[text_at] == '\n';
      if (empty && (indent < 0 || blanks <= indent)) {
        advance(static_cast<std::size_t>(blanks));
        if (at_end()) break;
        advance(), ++ends;
        continue;
      }
      if (indent < 0) indent = blanks;
      if (blanks < indent || indent <= parent || at_document_end()) break;
      const std::size_t begin = line_begin_ + static_cast<std::size_t>(indent),
                        end = std::min(text_.find('\n', begin), text_.size());
      const bool indented = is_blank(text_[begin]);
      if (any && fold && !indented && !after_indented)
        s += folded(ends);
      else
        s += std::string(ends, '\n');
      s += text_.substr(begin, end - begin);
      any = true, after_indented = indented, ends = 0;
      advance(end - at_);
      if (!at_end()) advance(), ends = 1;
    }
    if (chomp == '+')
      s += std::string(ends, '\n');
    else if (chomp == ' ' && any && ends > 0)
      s += '\n';
    return n;
  }

 private:
  static void append_utf8(std::string& out, unsigned long c) {
    if (c < 0x80) {
      out += static_cast<char>(c);
      return;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    constexpr unsigned kFirst[] = {0, 0xc0, 0xe0, 0xf0};
    out += static_cast<char>(kFirst[more] | (c >> (6 * more)));
    for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3f));
  }
};

}  // namespace YAML
