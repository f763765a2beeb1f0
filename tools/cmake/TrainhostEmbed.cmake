# Script: writes OUT, a C++ source whose function templates() returns every file below the folders ROOTS, each as
# "PREFIX=FOLDER". Run at build time by core/plugin_template, as bytes.
string(CONCAT text "// Written by the build from sdk/templates and sdk/rust; do not edit.\n"
  "#include \"core/plugin_template/embedded.hpp\"\n\n")
string(APPEND text "namespace trainhost::plugin_template {\nnamespace {\nconstexpr Embedded kFiles[] = {\n")
string(REPLACE "," ";" ROOTS "${ROOTS}")
foreach(root ${ROOTS})
  string(REPLACE "=" ";" pair ${root})
  list(GET pair 0 prefix)
  list(GET pair 1 folder)
  file(GLOB_RECURSE files RELATIVE ${folder} ${folder}/*)
  list(FILTER files EXCLUDE REGEX "^target/|Cargo.lock$|^README.md$|mirror.py$|^.clang-format$")
  list(SORT files)
  foreach(file ${files})
    file(READ ${folder}/${file} content HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" content "${content}")
    file(SIZE ${folder}/${file} size)
    string(APPEND text "    {\"${prefix}/${file}\", std::string_view(\"${content}\", ${size})},\n")
  endforeach()
endforeach()
string(APPEND text "};\n}  // namespace\n\nstd::span<const Embedded> templates() { return kFiles; }\n\n"
  "}  // namespace trainhost::plugin_template\n")
file(WRITE ${OUT} "${text}")
