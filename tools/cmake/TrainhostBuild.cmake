# Helpers that keep every folder's CMakeLists.txt short: one call makes one library, plugin or test.
# Flags are set here by target, warnings privately; nothing edits CMAKE_CXX_FLAGS.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# bin/trainhost finds its plugins in ../lib/trainhost/plugins, in the build tree as when installed.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(TRAINHOST_PLUGIN_DIR ${PROJECT_BINARY_DIR}/lib/trainhost/plugins)
set(TRAINHOST_ENGINE_DIR ${PROJECT_BINARY_DIR}/lib/trainhost/engines)

set(TRAINHOST_SANITIZE "" CACHE STRING "Sanitizers for everything, e.g. address,undefined")

# Headers that most sources of the host include, parsed once. A target that reuses them has to be compiled with the same
# flags, so that libraries and test programs have one set each.
set(TRAINHOST_PCH_HEADERS <algorithm> <array> <cmath> <cstdint> <cstring> <filesystem> <functional> <map> <memory>
  <optional>
  <set> <span> <string> <string_view> <utility> <vector>)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch/empty.cpp
  CONTENT "// Of a target that only holds a precompiled header.\nint main() { return 0; }\n")

# trainhost_flags(target [TEST]): warnings, optimization and sanitizers, by language: nvcc does not know the host
# compiler's flags. Test programs are compiled with -Og, which takes hardly longer than -O0, and some run three times
# as fast; loops that take long are in libraries (trainhost_reference_ops). Kernels are built without sanitizers. GCC
# collects its garbage from 2 GiB on, which no file reaches: 8 % less time for 11 % more memory (650 MiB at most).
function(trainhost_flags target)
  cmake_parse_arguments(A "TEST" "" "" ${ARGN})
  set(optimize -O2)
  if(A_TEST)
    set(optimize -Og)
    # Fixtures in anonymous namespaces: in a unity build their file is not the main one, for which GCC warns.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wshadow>"
    "$<$<COMPILE_LANGUAGE:C,CXX>:$<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>;-fstack-protector-strong>"
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=2097152>
    "$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<CONFIG:Debug>>>:${optimize}>"
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-fno-gnu-unique,-fstack-protector-strong>)
  if(TRAINHOST_SANITIZE)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${TRAINHOST_SANITIZE};-fno-sanitize-recover=all>"
      "$<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer;-g1>")
    target_link_options(${target} PRIVATE -fsanitize=${TRAINHOST_SANITIZE})
  endif()
endfunction()

# trainhost_library(name SOURCES... LINK libs...): a static core library with the alias trainhost::<name>.
function(trainhost_library name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(trainhost_${name} STATIC ${A_SOURCES})
  add_library(trainhost::${name} ALIAS trainhost_${name})
  target_include_directories(trainhost_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(trainhost_${name} PUBLIC ${A_LINK} PRIVATE ${A_PRIVATE_LINK})
  trainhost_flags(trainhost_${name})
endfunction()

# trainhost_precompiled_header(name [TEST] KIND headers...): the target NAME that others reuse a precompiled header
# from. KIND is STATIC (position-independent code) or EXECUTABLE.
function(trainhost_precompiled_header name kind)
  if(kind STREQUAL "EXECUTABLE")
    add_executable(${name} EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/pch/empty.cpp)
    trainhost_flags(${name} TEST)
  else()
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/pch/empty.cpp)
    trainhost_flags(${name})
  endif()
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# trainhost_reuse_headers(HOT|COLD targets...): libraries and plugins outside core/ reuse its precompiled headers. COLD:
# code that runs once per command, or in tests only, compiled with -Og; half the build time.
function(trainhost_reuse_headers kind)
  foreach(target IN LISTS ARGN)
    if(kind STREQUAL "COLD")
      target_precompile_headers(${target} REUSE_FROM trainhost_cold_pch)
      target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-Og>)
    else()
      target_precompile_headers(${target} REUSE_FROM trainhost_pch)
    endif()
    # The macros of a precompiled header have to agree.
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
  endforeach()
endfunction()

# trainhost_plugin(name SOURCES... LINK libs... [DIR dir] [COMPONENT c]): a plugin library NAME.so with exactly one
# exported symbol; COMPONENT: its package, if it is not that of the other plugins.
function(trainhost_plugin name)
  cmake_parse_arguments(A "" "DIR;EXPORTS;COMPONENT" "SOURCES;LINK" ${ARGN})
  if(NOT A_COMPONENT)
    set(A_COMPONENT plugins)
  endif()
  if(NOT A_DIR)
    set(A_DIR ${TRAINHOST_PLUGIN_DIR})
  endif()
  if(NOT A_EXPORTS)
    set(A_EXPORTS ${PROJECT_SOURCE_DIR}/sdk/trainhost_plugin.map)
  endif()
  add_library(${name} MODULE ${A_SOURCES})
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${A_DIR})
  target_link_libraries(${name} PRIVATE trainhost::sdk ${A_LINK})
  target_link_options(${name} PRIVATE -Wl,--version-script=${A_EXPORTS} -Wl,-z,now -Wl,-z,relro)
  if(NOT TRAINHOST_SANITIZE)  # the program has the sanitizer's functions
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${A_EXPORTS})
  trainhost_flags(${name})
  trainhost_install_plugin(${name} ${A_DIR} ${A_COMPONENT})
endfunction()

# trainhost_test(PATH/NAME LINK libs... [SOURCES more...] [APART case=suite...] [LABELS l] [SERIAL]):
# tests/PATH/NAME.cpp and the other sources become one test program and one ctest case "PATH/NAME". APART: a test suite
# that takes long becomes a ctest case of its own, so that it runs beside the rest. SERIAL: never at the same time as
# another test, for tests that wait for deadlines or count processes of the whole machine. The sources are compiled
# together, eight at a time, so names in anonymous namespaces are unique within a program.
function(trainhost_test path)
  cmake_parse_arguments(A "SERIAL" "" "LINK;LABELS;APART;SOURCES" ${ARGN})
  string(REPLACE "/" "_" target ${path})
  add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${path}.cpp ${A_SOURCES})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_definitions(${target} PRIVATE BOOST_TEST_DYN_LINK
    TRAINHOST_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TRAINHOST_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE ${A_LINK} trainhost_boost_test trainhost_reference_ops)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  trainhost_flags(${target} TEST)
  target_precompile_headers(${target} REUSE_FROM trainhost_test_pch)
  set(rest "")
  set(cases ${path})
  foreach(pair IN LISTS A_APART)
    string(REGEX MATCH "(.+)=(.+)" pair ${pair})
    add_test(NAME ${CMAKE_MATCH_1} COMMAND ${target} --run_test=${CMAKE_MATCH_2})
    list(APPEND rest --run_test=!${CMAKE_MATCH_2})
    list(APPEND cases ${CMAKE_MATCH_1})
  endforeach()
  add_test(NAME ${path} COMMAND ${target} ${rest})
  set_tests_properties(${cases} PROPERTIES LABELS "${A_LABELS}" TIMEOUT 900 SKIP_RETURN_CODE 77 RUN_SERIAL ${A_SERIAL}
    ENVIRONMENT TRAINHOST_CACHE=${PROJECT_BINARY_DIR}/tests/cache)
endfunction()

# Prints which libraries were found, and what is not built without them.
function(trainhost_summary)
  set(blas "no: the CPU trainer is not built")
  if(TARGET trainhost_cpu_engine)
    set(blas "yes")
  endif()
  set(cuda "no: the CUDA trainer is listed as unavailable")
  if(TRAINHOST_CUDA_FOUND)
    list(JOIN TRAINHOST_CUDA_ARCHITECTURES " " architectures)
    set(cuda "${CMAKE_CUDA_COMPILER_VERSION} for ${architectures}")
    if(TARGET trainhost_cuda_engine_12)
      string(APPEND cuda "; engine for CUDA 12 with ${TRAINHOST_CUDA12_TOOLKIT}")
    endif()
  elseif(TRAINHOST_CUDA STREQUAL "OFF")
    set(cuda "off")
  endif()
  set(spm "no: only byte-level and raw token data")
  if(TRAINHOST_SENTENCEPIECE)
    set(spm "yes")
  endif()
  message(STATUS "trainhost ${PROJECT_VERSION} (${CMAKE_BUILD_TYPE})")
  message(STATUS "  OpenBLAS       ${blas}")
  message(STATUS "  CUDA           ${cuda}")
  set(mpi "no: runs have one process")
  if(TARGET trainhost_mpi_openmpi AND TARGET trainhost_mpi_mpich)
    set(mpi "Open MPI, MPICH")
  elseif(TARGET trainhost_mpi_openmpi)
    set(mpi "Open MPI")
  elseif(TARGET trainhost_mpi_mpich)
    set(mpi "MPICH")
  endif()
  message(STATUS "  MPI            ${mpi}")
  message(STATUS "  SentencePiece  ${spm}")
  set(python "no, it needs ${TRAINHOST_PYTHON_MISSING}")
  if(TARGET trainhost_python)
    set(python "for Python ${TRAINHOST_PYTHON_VERSION}")
  endif()
  message(STATUS "  Python module  ${python}")
  message(STATUS "  tests          ${TRAINHOST_TESTS}")
  message(STATUS "  sanitizers     ${TRAINHOST_SANITIZE}")
endfunction()
