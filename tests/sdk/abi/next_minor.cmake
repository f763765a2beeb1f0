# A host and plugins of the next minor version, to be tested together with those of this one: copies of the
# headers with appended fields (minor 2), their golden file, and the lines of the host that would use the
# fields. Patched at configure time from the current sources; a patch whose search text is missing is an
# error.

# next_minor_patch(FILE from to [from to ...]): writes the patched FILE of the source tree to ${next_minor}.
function(next_minor_patch file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
  file(READ ${PROJECT_SOURCE_DIR}/${file} text)
  math(EXPR last "${ARGC} - 1")
  foreach(i RANGE 1 ${last} 2)
    math(EXPR j "${i} + 1")
    string(FIND "${text}" "${ARGV${i}}" at)
    if(at LESS 0)
      message(FATAL_ERROR "tests/sdk/abi/next_minor.cmake: ${file} does not contain: ${ARGV${i}}")
    endif()
    string(REPLACE "${ARGV${i}}" "${ARGV${j}}" text "${text}")
  endforeach()
  file(CONFIGURE OUTPUT ${next_minor}/${file} CONTENT "${text}" @ONLY)
endfunction()

set(next_minor ${CMAKE_CURRENT_BINARY_DIR}/next_minor_host)
set(sdk sdk/include/trainhost)
file(GLOB headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${sdk}/*.h)
foreach(header ${headers})
  configure_file(${PROJECT_SOURCE_DIR}/${header} ${next_minor}/${header} COPYONLY)
endforeach()
next_minor_patch(${sdk}/status.h "TH_ABI_MINOR 1u" "TH_ABI_MINOR 2u")
next_minor_patch(${sdk}/model.h "} th_run;" "  uint32_t next_minor_ranks, next_minor_reserved;\n} th_run;")
next_minor_patch(${sdk}/trainer.h "} th_step_out;" "  uint64_t joules;\n} th_step_out;"
  "} th_trainer;" "  th_status (*next_minor)(th_trainer_inst*, uint64_t* value);\n} th_trainer;")
next_minor_patch(${sdk}/memory.h "} th_mem;" "  uint64_t next_minor_bytes;\n} th_mem;")
next_minor_patch(${sdk}/host.h "(*extension)(const th_host*, const char* id);"
  "(*extension)(const th_host*, const char* id);\n  uint64_t next_minor_budget;")

next_minor_patch(core/abi/convert_structs.cpp "c.kv_page = memory.kv_page;"
  "c.kv_page = memory.kv_page;\n  c.next_minor_ranks = r.seed == 42 ? 3 : 0;")
next_minor_patch(core/abi/report_transfer.cpp "n.parent = c.parent;"
  "n.parent = c.parent;\n  if (TH_HAS(&c, th_mem, next_minor_bytes)) report_.notes.push_back(\"next_minor \" + std::to_string(c.next_minor_bytes));")
next_minor_patch(core/plugin/host_table.cpp "table_->self = this;"
  "table_->self = this;\n  table_->next_minor_budget = 77;")
next_minor_patch(core/plugin/adapt_trainer.cpp "return {out.loss," "return {out.loss + static_cast<double>(out.joules),"
  "if (!t_.trainer.info) return {};"
  "if (key == \"next_minor\") return t_.trainer.next_minor ? \"a slot\" : \"no slot\";\n    if (!t_.trainer.info) return {};")

# Table of struct sizes: from the current golden file, and from one of the next minor version with the
# appended fields.
file(READ ${PROJECT_SOURCE_DIR}/sdk/abi/v1.1.txt golden)
string(REPLACE "abi 1.1" "abi 1.2" golden "${golden}")
foreach(change "th_run 256 264" "th_step_out 48 56" "th_trainer 104 112" "th_mem 80 88" "th_host 104 112")
  separate_arguments(change)
  list(GET change 0 name)
  list(GET change 1 old)
  list(GET change 2 new)
  string(FIND "${golden}" "struct ${name} ${old}\n" at)
  if(at LESS 0)
    message(FATAL_ERROR "tests/sdk/abi/next_minor.cmake: the size of ${name} is no longer ${old}")
  endif()
  string(REPLACE "struct ${name} ${old}\n" "struct ${name} ${new}\n" golden "${golden}")
endforeach()
string(APPEND golden "field th_run 256 4 next_minor_ranks uint32_t\n")
file(CONFIGURE OUTPUT ${next_minor}/v1.2.txt CONTENT "${golden}" @ONLY)
trainhost_abi_sizes(${next_minor}/abi/abi_sizes.inc ${PROJECT_SOURCE_DIR}/sdk/abi/v1.0.txt
  ${PROJECT_SOURCE_DIR}/sdk/abi/v1.1.txt ${next_minor}/v1.2.txt)

# The host of the next minor version: all sources of core/abi and core/plugin, compiled with its headers.
set(sources "")
foreach(folder abi plugin)
  get_target_property(files trainhost_${folder} SOURCES)
  foreach(file ${files})
    if(IS_ABSOLUTE ${file})
      list(APPEND sources ${file})
    elseif(EXISTS ${next_minor}/core/${folder}/${file})
      list(APPEND sources ${next_minor}/core/${folder}/${file})
    else()
      list(APPEND sources ${PROJECT_SOURCE_DIR}/core/${folder}/${file})
    endif()
  endforeach()
endforeach()
add_library(next_minor_host STATIC ${sources})
target_include_directories(next_minor_host BEFORE PUBLIC ${next_minor}/sdk/include ${next_minor}/abi)
target_include_directories(next_minor_host PUBLIC ${PROJECT_SOURCE_DIR})
get_target_property(defines trainhost_plugin COMPILE_DEFINITIONS)
target_compile_definitions(next_minor_host PRIVATE ${defines})
get_target_property(libraries trainhost_plugin LINK_LIBRARIES)
list(REMOVE_ITEM libraries trainhost::abi trainhost::sdk)
target_link_libraries(next_minor_host PUBLIC trainhost::placement ${libraries})
trainhost_flags(next_minor_host)
target_compile_options(next_minor_host PRIVATE $<$<NOT:$<CONFIG:Debug>>:-Og>)  # that of the precompiled header
set_target_properties(next_minor_host PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
target_precompile_headers(next_minor_host REUSE_FROM trainhost_cold_pch)

# The same plugins, built with the headers of both minor versions.
foreach(kind estimator trainer)
  foreach(minor this_minor next_minor)
    trainhost_plugin(versioned_${kind}_${minor} SOURCES versioned/versioned.c
      DIR ${CMAKE_CURRENT_BINARY_DIR}/plugins/${minor}/${kind})
    set_target_properties(versioned_${kind}_${minor} PROPERTIES OUTPUT_NAME versioned)
    list(APPEND versioned_plugins versioned_${kind}_${minor})
  endforeach()
  target_include_directories(versioned_${kind}_next_minor BEFORE PRIVATE ${next_minor}/sdk/include)
endforeach()
foreach(minor this_minor next_minor)
  target_compile_definitions(versioned_trainer_${minor} PRIVATE VERSIONED_TRAINER)
endforeach()

trainhost_test(sdk/abi/minor_versions_test LINK trainhost::plugin trainhost::abi)
add_executable(sdk_abi_minor_versions_next_test minor_versions_test.cpp)
set_target_properties(sdk_abi_minor_versions_next_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_compile_definitions(sdk_abi_minor_versions_next_test PRIVATE BOOST_TEST_DYN_LINK TRAINHOST_NEXT_MINOR)
target_link_libraries(sdk_abi_minor_versions_next_test PRIVATE next_minor_host trainhost_boost_test)
trainhost_flags(sdk_abi_minor_versions_next_test)
add_test(NAME sdk/abi/minor_versions_next_test COMMAND sdk_abi_minor_versions_next_test)
foreach(test sdk_abi_minor_versions_test sdk_abi_minor_versions_next_test)
  target_compile_definitions(${test} PRIVATE VERSIONED_PLUGINS="${CMAKE_CURRENT_BINARY_DIR}/plugins")
  add_dependencies(${test} ${versioned_plugins})
endforeach()
