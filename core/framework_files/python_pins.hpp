// Releases of packages that a script or a notebook names: `pip install trl==0.12.0` in a cell, and the
// dependencies of the inline metadata of a script (PEP 723).
#pragma once
#include <string>
#include <vector>

#include "core/framework_files/python_tokens.hpp"

namespace trainhost::framework_files::python {

struct Pin {
  std::string package, version;  // "trl", "0.12.0"
  Where where;
};

/// Packages that are pinned to one release with "==", in the order of the text; the last pin of a package
/// counts. "4.46.*" is "4.46".
std::vector<Pin> pinned_packages(const Source& source);

}  // namespace trainhost::framework_files::python
