# trainhost_add_plugin(NAME SOURCES file... [LINK library...]): target NAME that builds the plugin NAME.so.
#   - It exports one symbol: hidden visibility, the SDK's version script, no GNU-unique symbols (they would prevent
#     unloading).
#   - Undefined symbols are errors at link time (-z defs); symbols are bound at load time (-z now).
# CMAKE_*_FLAGS are not changed. -ffast-math is an error: linking with it changes the floating-point mode of
# the whole host when the library is loaded; the host restores the mode, and `trainhost plugins check` reports
# a failure.
function(trainhost_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;LINK")
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "trainhost_add_plugin(${name}): "
      "unknown argument '${A_UNPARSED_ARGUMENTS}'; use SOURCES and LINK")
  endif()
  if(NOT A_SOURCES)
    message(FATAL_ERROR "trainhost_add_plugin(${name}): SOURCES is missing")
  endif()
  if("${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS} ${CMAKE_MODULE_LINKER_FLAGS}" MATCHES "-ffast-math|-Ofast")
    message(FATAL_ERROR
      "trainhost_add_plugin(${name}): -ffast-math and -Ofast change the floating-point mode of the host "
      "when the plugin is loaded; use -O3 -fno-math-errno -fno-trapping-math for the files that need it")
  endif()
  add_library(${name} MODULE ${A_SOURCES})
  target_link_libraries(${name} PRIVATE trainhost::sdk ${A_LINK})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX .so C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON LINK_DEPENDS ${trainhost-sdk_VERSION_SCRIPT})
  if(CMAKE_C_COMPILER_LOADED)
    target_compile_features(${name} PRIVATE c_std_11)
  endif()
  if(CMAKE_CXX_COMPILER_LOADED)
    target_compile_features(${name} PRIVATE cxx_std_17)
  endif()
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  target_link_options(${name} PRIVATE -Wl,--version-script=${trainhost-sdk_VERSION_SCRIPT} -Wl,-z,now -Wl,-z,relro
    -Wl,-z,noexecstack)
  if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS}" MATCHES "-fsanitize")
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
